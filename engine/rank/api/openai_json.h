// Parts that the answers of OpenAI's endpoints share, as JSON text.
#pragma once

#include <string>
#include <vector>

#include "engine/rank/api/answer_format.h"

namespace lockstep {

// {"prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details":
// {"cached_tokens"}, "completion_tokens_details": {"reasoning_tokens"}}
std::string openai_usage_json(const AnswerUsage& usage);

// "stop", "length" or "tool_calls".
const char* openai_finish_reason(EndReason reason);

// A list of {"token", "logprob", "bytes", "top_logprobs"}.
std::string openai_logprobs_json(const std::vector<TokenLogprob>& entries);

}  // namespace lockstep
