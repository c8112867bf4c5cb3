// OpenAI's POST /v1/completions: text on, without a chat template.
#pragma once

#include <memory>
#include <string_view>

#include "engine/rank/api/answer_format.h"
#include "engine/rank/api/generation.h"

namespace lockstep {

// `prompt` is a string, token ids, or a list with one of these; max_tokens is 16 when it is absent,
// as with the original. Throws ApiError that names the field.
GenerationRequest parse_completion(std::string_view body, const SamplingParams& defaults);

std::unique_ptr<AnswerFormat> completion_format(const AnswerIdentity& identity,
                                                const GenerationRequest& request);

}  // namespace lockstep
