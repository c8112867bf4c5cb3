// What the engine remembers of one running request: KV page table, recurrent states, rope offset.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/model/config.h"
#include "engine/ops/rope/rope.h"
#include "engine/rank/weights.h"

namespace lockstep {

// State of one GDN layer on this rank.
struct GdnState {
  std::vector<float> state;  // [local v heads, dk, dv]
  std::vector<float> conv;   // [local conv channels, 3], oldest first, raw inputs
};

// What a verification round keeps of one GDN layer, so that a partly accepted round can be replayed
// from the state it started with.
struct GdnRecord {
  GdnState start;
  std::vector<float> m;          // [n_columns, local conv channels] raw projections
  std::vector<float> log_decay;  // [n_columns, local v heads]
  std::vector<float> beta;       // [n_columns, local v heads]
};

struct Sequence {
  std::vector<uint32_t> page_table;
  // One per GDN layer, in layer order; the records are of the last round with more than one column.
  // Empty where a backend keeps the states on its device.
  std::vector<GdnState> gdn;
  std::vector<GdnRecord> records;
  int slot = 0;             // which the backend keeps its part of the sequence in
  int64_t n_positions = 0;  // positions whose KV and states are committed
  int32_t rope_delta = 0;   // rope position of decode token = index + rope_delta
  std::vector<RopePosition> prompt_positions;  // empty for text: all three axes equal the index

  RopePosition rope_position(int64_t index) const {
    if (index < static_cast<int64_t>(prompt_positions.size())) {
      return prompt_positions[static_cast<size_t>(index)];
    }
    const auto position = static_cast<int32_t>(index + rope_delta);
    return {position, position, position};
  }
};

// States before the first token: all zero, one per GDN layer.
std::vector<GdnState> zero_states(const ModelConfig& config, const RankDims& dims);

}  // namespace lockstep
