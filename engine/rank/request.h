// One generation request as the scheduler sees it, and what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/media/patches.h"
#include "engine/ops/sample/sample.h"
#include "engine/rank/injection.h"
#include "engine/rank/taps.h"

namespace lockstep {

using ImageList = std::vector<std::shared_ptr<const ImagePatches>>;

// Watches the generated text of one request for stop strings. A function of the tokens alone.
class StopWatcher {
 public:
  virtual ~StopWatcher() = default;
  // Takes the next token; true when a stop string is now complete.
  virtual bool accept(int32_t token) = 0;
};

struct Request {
  std::string name;
  std::vector<int32_t> prompt;
  ImageList images;  // of the prompt's image pads, in order; expand_image_pads made room for them
  int64_t max_tokens = 0;
  SamplingParams sampling;
  bool ignore_eos = false;
  std::vector<int32_t> stop_ids;   // besides the model's end-of-turn ids
  std::vector<int32_t> force_ids;  // teacher forcing: fed instead of the chosen tokens
  int n_logits = 0;                // largest logits to report per step
  bool report_drafts = false;
  bool use_prefix_cache = true;
  // First positions of the prompt whose KV pages hold a fixed pattern and which leave the states
  // zero: for measuring long contexts without their prefill.
  int64_t assumed_context = 0;
  std::optional<TapRequest> taps;
  std::shared_ptr<const Injection> injection;  // null: nothing is put in
  std::vector<std::string> stop_strings;
  std::shared_ptr<StopWatcher> stop_watcher;  // of stop_strings; null without any
};

struct StepLogits {
  std::vector<int32_t> ids;  // largest first, lowest id first on ties
  std::vector<float> values;
  double log_sum_exp = 0.0;   // over the whole vocabulary
  float chosen_value = 0.0f;  // logit of the token that was fed
};

enum class FinishReason : uint8_t { length, stop, cancelled };

const char* finish_reason_name(FinishReason reason);

struct DraftRound {
  int64_t step = 0;  // tokens generated before the round, less one
  std::vector<int32_t> drafts;
};

struct SpeculationStats {
  int64_t rounds = 0;   // decode rounds that verified at least one draft
  int64_t drafted = 0;  // drafts that were verified
  int64_t accepted = 0;
  std::vector<DraftRound> draft_rounds;  // kept when the request asks for them
};

struct RequestResult {
  std::vector<int32_t> ids;  // chosen tokens, one per step
  FinishReason finish_reason = FinishReason::length;
  std::vector<StepLogits> logits;
  SpeculationStats mtp;
  int64_t cache_hit_tokens = 0;
  int32_t rope_delta = 0;  // how far rope positions of what follows the prompt lie from indices
  int64_t computed_tokens = 0;  // prompt tokens that were prefilled
  double prefill_s = 0.0;
  double decode_s = 0.0;
};

}  // namespace lockstep
