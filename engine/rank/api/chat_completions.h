// OpenAI's POST /v1/chat/completions.
#pragma once

#include <memory>
#include <string_view>

#include "engine/rank/api/answer_format.h"
#include "engine/rank/api/generation.h"

namespace lockstep {

// `defaults`: sampling of a request that says nothing. Throws ApiError that names the field.
GenerationRequest parse_chat_completion(std::string_view body, const SamplingParams& defaults);

std::unique_ptr<AnswerFormat> chat_completion_format(const AnswerIdentity& identity,
                                                     const GenerationRequest& request);

// Sets what `tool_choice` means for rendering and reading: "none" hides the tools, "required" and a
// named function make the answer begin as a call.
struct ToolChoice {
  enum class Kind { automatic, none, required, named };
  Kind kind = Kind::automatic;
  std::string name;
};
void apply_tool_choice(const ToolChoice& choice, const std::vector<std::string>& tool_names,
                       GenerationRequest& request);

}  // namespace lockstep
