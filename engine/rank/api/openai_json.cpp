#include "engine/rank/api/openai_json.h"

#include <nlohmann/json.hpp>

#include "engine/text/utf8.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json token_json(const std::string& bytes, double logprob) {
  Json codes = Json::array();
  for (const char c : bytes) codes.push_back(static_cast<uint8_t>(c));
  return {
      {"token", replace_invalid_utf8(bytes)}, {"logprob", logprob}, {"bytes", std::move(codes)}};
}

}  // namespace

std::string openai_usage_json(const AnswerUsage& usage) {
  const Json json = {{"prompt_tokens", usage.prompt_tokens},
                     {"completion_tokens", usage.completion_tokens},
                     {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
                     {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                     {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
  return json.dump();
}

const char* openai_finish_reason(EndReason reason) {
  switch (reason) {
    case EndReason::length:
      return "length";
    case EndReason::tool_calls:
      return "tool_calls";
    default:
      return "stop";
  }
}

std::string openai_logprobs_json(const std::vector<TokenLogprob>& entries) {
  Json list = Json::array();
  for (const TokenLogprob& entry : entries) {
    Json json = token_json(entry.bytes, entry.logprob);
    json["top_logprobs"] = Json::array();
    for (const auto& [bytes, logprob] : entry.top) {
      json["top_logprobs"].push_back(token_json(bytes, logprob));
    }
    list.push_back(std::move(json));
  }
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string tool_call_id(const AnswerIdentity& identity, size_t index) {
  return "call_" + identity.request_id + "_" + std::to_string(index);
}

}  // namespace lockstep
