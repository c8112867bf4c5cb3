// The columns of one pass through the layers: spans of consecutive positions, one sequence each.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ops/common/rounding.h"
#include "engine/rank/injection.h"
#include "engine/rank/sequence.h"
#include "engine/rank/taps.h"

namespace lockstep {

enum class Phase : uint8_t { prefill, decode };

struct Span {
  Sequence* sequence = nullptr;
  Phase phase = Phase::prefill;
  int64_t first_position = 0;
  int64_t n_tokens = 0;
  int64_t column = 0;  // first column in the batch
  int64_t prompt_tokens = 0;
  TapRecorder* taps = nullptr;  // null: nothing is recorded
  int64_t first_visible = 0;    // attention sees positions from here on; 0 but for windowed drafts
  const std::vector<int64_t>* image_tap_rows = nullptr;  // prompt positions of "image/" taps
  const Injection* injection = nullptr;                  // null: nothing is replaced
};

struct Batch {
  std::vector<int32_t> ids;             // [n_columns]
  std::vector<RopePosition> positions;  // [n_columns]
  // Columns whose embedding is not their token's but this row [hidden]; shorter than n_columns() or
  // null where it is the token's.
  std::vector<const float*> embedding_rows;
  std::vector<Span> spans;
  bool mtp_of_prompt = false;  // MTP slots of prompt positions, however few
  int round = 0;

  int64_t n_columns() const { return static_cast<int64_t>(ids.size()); }
  // Adds `tokens` as the next positions of a sequence; `rows` is empty or one entry of
  // embedding_rows a token.
  void add(Span span, const int32_t* tokens, const std::vector<const float*>& rows = {});
};

}  // namespace lockstep
