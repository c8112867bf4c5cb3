// Anthropic's POST /v1/messages and /v1/messages/count_tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/rank/api/answer_format.h"
#include "engine/rank/api/generation.h"

namespace lockstep {

// Blocks of text, images (base64), tool_use, tool_result and thinking become what the chat template
// knows. Thinking is off unless `thinking` asks for it, as with the original; a last message of the
// assistant is continued. Throws ApiError that names the field.
GenerationRequest parse_message(std::string_view body, const SamplingParams& defaults);

// The same for a request that only wants its tokens counted: max_tokens is not required.
GenerationRequest parse_count_tokens(std::string_view body, const SamplingParams& defaults);

std::unique_ptr<AnswerFormat> message_format(const AnswerIdentity& identity,
                                             const GenerationRequest& request);

// {"input_tokens": n}
std::string count_tokens_json(int64_t n_tokens);

}  // namespace lockstep
