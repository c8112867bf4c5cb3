#include "engine/serve/postmortem.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/temp_dir.h"
#include "engine/model/safetensors.h"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMaxTappedPositions = 512;
constexpr int64_t kMaxReplayedTokens = 512;

Json read_json(const fs::path& path) {
  const Json json = Json::parse(read_text_file(path), nullptr, false);
  if (!json.is_object()) fail("{}: is not a JSON object", path.string());
  return json;
}

// Records of both ranks are in each rank's file; the file of any rank will do.
std::vector<RecordDifference> differing_record(const fs::path& folder) {
  static const std::vector<std::string> kFields = {"round",     "n_tokens",       "token_hash",
                                                   "positions", "decoding_slots", "rows_digest"};
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("halt-") || entry.path().extension() != ".json") continue;
    for (const Json& round : read_json(entry.path()).value("rounds", Json::array())) {
      if (!round.is_array() || round.size() < 2) continue;
      for (const std::string& field : kFields) {
        if (round[0].value(field, Json()) == round[1].value(field, Json())) continue;
        return {{round[0].value("round", uint64_t{0}), field, round[0].dump(), round[1].dump()}};
      }
    }
  }
  return {};
}

// In the order of computation: prompt before decode, embedding, layers, final norm.
int64_t rank_in_order(const std::string& name) {
  const std::string plain = name.starts_with("decode/") ? name.substr(7) : name;
  if (plain == "embed") return 0;
  if (!plain.starts_with("layers.")) return int64_t{1} << 32;
  const int64_t layer = std::strtoll(plain.c_str() + 7, nullptr, 10);
  const int64_t part = plain.ends_with(".mixer") ? 1 : plain.ends_with(".mlp") ? 2 : 3;
  return layer * 4 + part;
}

// The first differing row of one tensor.
std::optional<TensorDifference> differing_row(const TensorInfo& a, const TensorInfo& b) {
  if (a.shape.size() != 2 || b.shape.size() != 2 || a.shape[1] != b.shape[1]) return std::nullopt;
  const int64_t width = a.shape[1];
  const int64_t n_rows = std::min(a.shape[0], b.shape[0]);
  for (int64_t row = 0; row < n_rows; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const size_t at = static_cast<size_t>((row * width + i) * 4);
      if (std::memcmp(a.bytes.data() + at, b.bytes.data() + at, 4) == 0) continue;
      TensorDifference difference;
      difference.tensor = a.name;
      difference.row = row;
      difference.index = i;
      std::memcpy(&difference.rank_0, a.bytes.data() + at, 4);
      std::memcpy(&difference.rank_1, b.bytes.data() + at, 4);
      return difference;
    }
  }
  return std::nullopt;
}

bool comes_before(const TensorDifference& a, const TensorDifference& b) {
  const bool a_decode = a.tensor.starts_with("decode/");
  const bool b_decode = b.tensor.starts_with("decode/");
  if (a_decode != b_decode) return b_decode;
  if (a.row != b.row) return a.row < b.row;
  return rank_in_order(a.tensor) < rank_in_order(b.tensor);
}

// Sampling fields that a job takes beside its prompt.
void copy_fields(const Json& body, Json& job) {
  for (const char* field :
       {"temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty",
        "repetition_penalty", "logit_bias", "seed", "max_tokens", "ignore_eos", "stop"}) {
    if (body.contains(field) && !body[field].is_null()) job[field] = body[field];
  }
}

// A messages request as a chat-completions body.
Json chat_of_messages(const Json& body) {
  if (body.contains("tools")) fail("an Anthropic request with tools is no job");
  Json chat = body;
  Json messages = Json::array();
  if (body.contains("system")) {
    messages.push_back({{"role", "system"}, {"content", body["system"]}});
  }
  for (const Json& message : body.value("messages", Json::array())) messages.push_back(message);
  chat["messages"] = messages;
  for (const char* field : {"system", "stop_sequences", "thinking", "metadata"}) chat.erase(field);
  if (body.contains("stop_sequences")) chat["stop"] = body["stop_sequences"];
  return chat;
}

struct Replay {
  std::vector<std::string> names;
  std::string jobs;
  std::vector<std::string> not_replayed;
};

Replay make_replay(const fs::path& requests) {
  Replay replay;
  std::istringstream lines(read_text_file(requests, size_t{1} << 30));
  for (std::string line; std::getline(lines, line);) {
    const std::string name = fmt::format("request-{}", replay.names.size());
    try {
      replay.jobs += job_of_request(line, name, kMaxTappedPositions) + "\n";
      replay.names.push_back(name);
    } catch (const Error& error) {
      replay.not_replayed.push_back(error.what());
    }
  }
  return replay;
}

// The engine again on both ranks, with the flags and planted faults of the halted server. True when
// the ranks disagree again.
bool run_again(const Json& halt, const fs::path& jobs, const fs::path& out) {
  std::vector<std::string> argv = {sibling_program("lockstep-generate").string(),
                                   "--jobs=" + jobs.string(), "--out=" + out.string()};
  for (const Json& argument : halt.value("engine_arguments", Json::array())) {
    argv.push_back(argument.get<std::string>());
  }
  const ProcessResult run = run_process(argv, std::chrono::hours(2));
  const bool halted = run.exit_code == static_cast<int>(ExitCode::lockstep_failure);
  if (run.exit_code != 0 && !halted) {
    fail_with(ExitCode::could_not_judge, "the replay failed ({}): {}", run.exit_code,
              run.stderr_text);
  }
  return halted;
}

}  // namespace

TensorDifference first_difference(const fs::path& rank_0, const fs::path& rank_1) {
  const SafetensorsFile a(rank_0);
  const SafetensorsFile b(rank_1);
  TensorDifference first;
  for (const TensorInfo& tensor : a.tensors()) {
    if (a.metadata().count("shard:" + tensor.name) > 0) continue;  // each rank has a part
    const TensorInfo* other = b.find(tensor.name);
    if (other == nullptr) continue;
    const auto difference = differing_row(tensor, *other);
    if (difference && (!first.found() || comes_before(*difference, first))) first = *difference;
  }
  return first;
}

std::string job_of_request(const std::string& line, const std::string& name, int64_t n_taps) {
  const Json request = Json::parse(line, nullptr, false);
  if (!request.is_object()) fail("requests.jsonl: a line is no JSON object");
  const std::string id = request.value("id", "");
  const std::string target = request.value("target", "");
  Json body = Json::parse(request.value("body", ""), nullptr, false);
  if (!body.is_object()) fail("{}: its body is no JSON object", id);
  if (!body.contains("seed") || body["seed"].is_null()) {
    body["seed"] = request.value("seed", int64_t{0});
  }
  Json job = {{"name", name}};
  if (target.starts_with("/v1/completions")) {
    job["prompt"] = body.value("prompt", Json());
    copy_fields(body, job);
  } else if (target.starts_with("/v1/chat/completions")) {
    job["chat"] = body;
  } else if (target.starts_with("/v1/messages")) {
    job["chat"] = chat_of_messages(body);
  } else {
    fail("{}: {} is no request that can run as a job", id, target);
  }
  const int64_t asked = body.value("max_tokens", kMaxReplayedTokens);
  job["max_tokens"] = std::min(asked, kMaxReplayedTokens);
  job["taps"] = {{"names", {"embed", "layers.*", "final_norm", "decode/*"}}, {"last", n_taps}};
  return job.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Postmortem examine_halt(const fs::path& folder) {
  if (!fs::exists(folder / "halt.json")) {
    fail("{}: holds no halt.json; give a folder that 'lockstep serve' left in --halt-dir",
         folder.string());
  }
  const Json halt = read_json(folder / "halt.json");
  Postmortem report;
  report.reason = halt.value("reason", "");
  report.records = differing_record(folder);
  if (!fs::exists(folder / "requests.jsonl")) return report;
  const Replay replay = make_replay(folder / "requests.jsonl");
  report.not_replayed = replay.not_replayed;
  report.n_replayed = static_cast<int>(replay.names.size());
  report.n_requests = report.n_replayed + static_cast<int>(replay.not_replayed.size());
  if (replay.names.empty()) return report;
  const TempDir work;
  write_file_atomically(work.path() / "jobs.jsonl", replay.jobs);
  report.halted_again = run_again(halt, work.path() / "jobs.jsonl", work.path() / "out");
  for (const std::string& name : replay.names) {
    const fs::path a = work.path() / "out" / (name + ".rank0.safetensors");
    const fs::path b = work.path() / "out" / (name + ".rank1.safetensors");
    if (!fs::exists(a) || !fs::exists(b)) continue;  // never started
    TensorDifference difference = first_difference(a, b);
    if (!difference.found() || report.first.found()) continue;
    difference.request = name;
    report.first = difference;
  }
  return report;
}

}  // namespace lockstep::serve
