// What a generating endpoint asks of the engine, whatever API it came through.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/ops/sample/sample.h"
#include "engine/rank/api/json_view.h"

namespace lockstep {

struct GenerationRequest {
  std::string model;  // as the request names it; may be empty

  // The prompt: exactly one of these.
  std::optional<std::string> chat_json;  // messages, tools ... for the chat template
  std::optional<std::string> prompt_text;
  std::optional<std::vector<int32_t>> prompt_ids;
  std::string forced_prefix;     // text behind the generation prompt that the model goes on from
  bool prefix_in_answer = true;  // the answer begins with it

  SamplingParams sampling;
  bool seed_given = false;
  std::optional<int64_t> max_tokens;  // absent: what the context has left
  std::vector<std::string> stops;
  bool ignore_eos = false;
  bool logprobs = false;
  int n_top_logprobs = 0;
  bool tokens_as_ids = false;  // log-probabilities name tokens "token_id:N", special ones too

  // How the answer is read.
  bool split_reasoning = false;
  std::string tools_json;      // {"tools": [...]} in OpenAI's form, or empty: no calls
  bool one_call_only = false;  // ends behind the first tool call

  bool stream = false;
  bool include_usage = false;  // OpenAI: a last chunk with usage
};

inline constexpr int64_t kMaxTokensLimit = int64_t{1} << 24;
inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 4096;  // each byte is looked at again for each stop
inline constexpr int kMaxTopLogprobs = 20;

// Fields that OpenAI's endpoints share: temperature, top_p, penalties, logit_bias, seed, stop, n,
// stream, stream_options, model, and this engine's own top_k, min_p, repetition_penalty,
// ignore_eos.
void read_openai_common(const JsonView& body, GenerationRequest& request);

// A string or a list of up to kMaxStops strings, none of them empty or above kMaxStopBytes.
std::vector<std::string> read_stops(const JsonView& field);

// Throws ApiError 404 model_not_found unless the request names `served` (or nothing is `strict`).
void check_model(const std::string& asked, const std::string& served, bool strict);

}  // namespace lockstep
