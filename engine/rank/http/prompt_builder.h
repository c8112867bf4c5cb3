// From what an API asked to a request for the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/rank/api/answer.h"
#include "engine/rank/engine.h"
#include "engine/rank/loaded_rank.h"

namespace lockstep {

struct PreparedRequest {
  Request request;
  bool starts_inside_reasoning = false;  // the prompt ends with an open <think>
};

class PromptBuilder {
 public:
  PromptBuilder(const LoadedRank& loaded, const RankEngine& engine)
      : loaded_(loaded), engine_(engine) {}

  // Renders, reads pictures, encodes, and checks against the context. `now_unix_s` is the date for
  // templates. Throws ApiError.
  PreparedRequest build(const GenerationRequest& asked, int64_t now_unix_s) const;

  // The prompt's tokens alone, however many. Throws ApiError.
  std::vector<int32_t> encode(const GenerationRequest& asked, int64_t now_unix_s) const;

 private:
  void make_prompt(const GenerationRequest& asked, int64_t now_unix_s,
                   PreparedRequest& prepared) const;
  std::string render(const GenerationRequest& asked, int64_t now_unix_s, ImageList& images) const;
  void check_bias(const SamplingParams& sampling) const;
  void set_room(const GenerationRequest& asked, Request& request) const;

  const LoadedRank& loaded_;
  const RankEngine& engine_;
};

}  // namespace lockstep
