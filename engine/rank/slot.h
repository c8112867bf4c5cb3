// A running request: what the scheduler and the drafter keep of it between rounds.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/rank/prefix_cache.h"
#include "engine/rank/prompt_images.h"
#include "engine/rank/request.h"
#include "engine/rank/sequence.h"

namespace lockstep {

struct Slot {
  uint64_t id = 0;  // of the request, in order of submission
  const Request* request = nullptr;
  RequestResult* result = nullptr;
  TapRecorder* taps = nullptr;
  Sequence sequence;
  PromptImages images;                   // of the prompt
  ContentKeys keys;                      // of the prompt
  std::vector<int64_t> snapshot_points;  // ascending grid points still ahead
  TokenHistory history;
  bool decoding = false;
  bool finished = false;
  int32_t next_token = 0;       // chosen (or forced), not yet fed
  std::vector<int32_t> drafts;  // guesses for the tokens after next_token
  int64_t n_mtp_slots = 0;      // MTP slots whose K and V are final
  std::vector<float>
      carried_hidden;  // final-norm row of slot n_mtp_slots when it lies before this chunk

  // Content keys and rope positions of the request's prompt.
  void place_prompt(const ModelConfig& config) {
    images = PromptImages(request->prompt, request->images, config);
    keys = images.content_keys(request->prompt);
    images.place(sequence, prompt_tokens());
    result->rope_delta = sequence.rope_delta;
  }

  int64_t prompt_tokens() const { return static_cast<int64_t>(request->prompt.size()); }
  int64_t tokens_left() const {
    return request->max_tokens - static_cast<int64_t>(result->ids.size());
  }
};

}  // namespace lockstep
