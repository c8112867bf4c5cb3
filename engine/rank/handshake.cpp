#include "engine/rank/handshake.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// JSON text, padded with zeros: ranks of other builds must be able to read it too.
using Block = std::array<char, 8192>;

Block to_block(const RankFacts& facts) {
  Json equal = Json::object();
  for (const auto& [name, value] : facts.equal) equal[name] = value;
  const Json json = {{"handshake", 1},
                     {"equal", equal},
                     {"max_context", facts.max_context},
                     {"shard", facts.shard_digest}};
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  Block block{};
  LOCKSTEP_CHECK(text.size() < block.size());
  std::copy(text.begin(), text.end(), block.begin());
  return block;
}

Json from_block(const Block& block, size_t rank) {
  const size_t length = ::strnlen(block.data(), block.size());
  Json json = Json::parse(block.data(), block.data() + length, nullptr, false);
  const bool readable = json.is_object() && json.value("handshake", 0) == 1 &&
                        json.contains("equal") && json["equal"].is_object();
  if (!readable) {
    fail_with(
        ExitCode::lockstep_failure,
        "TP2 LOCKSTEP FAILURE at start: rank {} is of another build; start all ranks from one "
        "installation",
        rank);
  }
  return json;
}

std::string shown(const Json& equal, const std::string& name) {
  return equal.contains(name) ? equal[name].get<std::string>() : "nothing";
}

void compare(const Json& first, const Json& other, size_t rank) {
  for (const Json* side : {&first, &other}) {
    for (const auto& [name, value] : side->items()) {
      if (shown(first, name) == shown(other, name)) continue;
      fail_with(ExitCode::lockstep_failure,
                "TP2 LOCKSTEP FAILURE at start: the ranks differ in {}: rank 0 has {}, rank {} has "
                "{}",
                name, shown(first, name), rank, shown(other, name));
    }
  }
}

}  // namespace

AgreedFacts agree_on_facts(const RankFacts& mine, Communicator& comm) {
  const Block block = to_block(mine);
  std::vector<Block> all(static_cast<size_t>(comm.n_ranks()));
  comm.all_gather_bytes(std::as_bytes(std::span(block)), std::as_writable_bytes(std::span(all)));
  AgreedFacts agreed;
  agreed.max_context = mine.max_context;
  const Json first = from_block(all[0], 0);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Json json = from_block(all[rank], rank);
    compare(first["equal"], json["equal"], rank);
    agreed.max_context = std::min(agreed.max_context, json.value("max_context", int64_t{0}));
    agreed.shard_digests.push_back(json.value("shard", ""));
  }
  return agreed;
}

}  // namespace lockstep
