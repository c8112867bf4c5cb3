#include "engine/rank/http/halt_dump.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const RoundRecord& record) {
  const auto hex = [](uint64_t value) { return fmt::format("{:016x}", value); };
  return {{"round", record.round},
          {"n_tokens", record.n_tokens},
          {"token_hash", hex(record.token_hash)},
          {"positions", record.positions},
          {"decoding_slots", record.decoding_slots},
          {"rows_digest", hex(record.rows_digest)},
          {"seen", record.seen},
          {"cancel_bits", hex(record.cancel_bits)}};
}

}  // namespace

std::string halt_json(const Error& error, int rank, const std::deque<RecordedRound>& rounds) {
  Json json = {{"halt", 1},
               {"rank", rank},
               {"pid", ::getpid()},
               {"exit_code", static_cast<int>(error.code())},
               {"message", error.what()},
               {"rounds", Json::array()}};
  for (const RecordedRound& round : rounds) {
    Json records = Json::array();
    for (const RoundRecord& record : round.records) records.push_back(to_json(record));
    json["rounds"].push_back(std::move(records));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void HaltDump::end_process(const Error& error, const std::deque<RecordedRound>& rounds) const {
  fmt::print(stderr, "{}: {}\n", program, error.what());
  if (!folder.empty()) {
    const auto path =
        std::filesystem::path(folder) / fmt::format("halt-{}-{}.json", rank, ::getpid());
    try {
      std::filesystem::create_directories(folder);
      write_file_atomically(path, halt_json(error, rank, rounds));
    } catch (const std::exception& failure) {
      fmt::print(stderr, "{}: {}: {}\n", program, path.string(), failure.what());
    }
  }
  std::fflush(stderr);
  ::_exit(static_cast<int>(error.code()));
}

}  // namespace lockstep
