// What ranks tell each other before the first round: they refuse, by name, any difference that
// could change arithmetic or scheduling, and take the smaller capacity.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"

namespace lockstep {

struct RankFacts {
  // Name and value of what must be the same on all ranks.
  std::vector<std::pair<std::string, std::string>> equal;
  int64_t max_context = 0;   // positions a slot
  std::string shard_digest;  // of this rank's weights
};

struct AgreedFacts {
  int64_t max_context = 0;                 // the smaller
  std::vector<std::string> shard_digests;  // in the order of ranks
};

// Throws Error (exit 70) that names the first fact that differs, with both values.
AgreedFacts agree_on_facts(const RankFacts& mine, Communicator& comm);

}  // namespace lockstep
