// POST /tokenize and /detokenize.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/rank/api/generation.h"

namespace lockstep {

// {"prompt": text}, {"content": text}, or the body of a chat-completions request: its prompt.
// Throws ApiError that names the field.
GenerationRequest parse_tokenize(std::string_view body);

// {"count", "max_model_len", "tokens": [ids]}
std::string tokenize_json(const std::vector<int32_t>& ids, int64_t max_context);

// {"tokens": [ids]}
std::vector<int32_t> parse_detokenize(std::string_view body);

// {"prompt": text, "content": text}: the names that vLLM and llama.cpp give it.
std::string detokenize_json(const std::string& text);

}  // namespace lockstep
