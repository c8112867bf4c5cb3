// OpenAI's POST /v1/responses, the stateless part: nothing is stored, so that an earlier response
// cannot be named.
#pragma once

#include <memory>
#include <string_view>

#include "engine/rank/api/answer_format.h"
#include "engine/rank/api/generation.h"

namespace lockstep {

// `input` is a string or a list of messages, function calls and their outputs. Throws ApiError that
// names the field.
GenerationRequest parse_response(std::string_view body, const SamplingParams& defaults);

std::unique_ptr<AnswerFormat> response_format(const AnswerIdentity& identity,
                                              const GenerationRequest& request);

}  // namespace lockstep
