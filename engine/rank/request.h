// One generation request as the scheduler sees it, and what came of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/rank/taps.h"

namespace lockstep {

struct Request {
  std::string name;
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> force_ids;  // teacher forcing: fed instead of the chosen tokens
  int n_logits = 0;                // largest logits to report per step
  std::optional<TapRequest> taps;
};

struct StepLogits {
  std::vector<int32_t> ids;   // largest first, lowest id first on ties
  std::vector<float> values;
  double log_sum_exp = 0.0;   // over the whole vocabulary
};

enum class FinishReason : uint8_t { length, stop };

struct RequestResult {
  std::vector<int32_t> ids;  // chosen tokens, one per step
  FinishReason finish_reason = FinishReason::length;
  std::vector<StepLogits> logits;
  double prefill_s = 0.0;
  double decode_s = 0.0;
};

}  // namespace lockstep
