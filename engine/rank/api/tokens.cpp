#include "engine/rank/api/tokens.h"

#include <nlohmann/json.hpp>

#include "engine/rank/api/chat_completions.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

GenerationRequest parse_tokenize(std::string_view body_text) {
  const JsonDocument document(body_text);
  const JsonView body = document.root();
  if (body["messages"].given()) return parse_chat_completion(body_text, {});
  GenerationRequest request;
  const JsonView content = body["content"];
  request.prompt_text = content.given() ? content.text() : body["prompt"].text();
  return request;
}

std::string tokenize_json(const std::vector<int32_t>& ids, int64_t max_context) {
  return Json{{"count", ids.size()}, {"max_model_len", max_context}, {"tokens", ids}}.dump();
}

std::vector<int32_t> parse_detokenize(std::string_view body_text) {
  const JsonDocument document(body_text);
  const JsonView tokens = document.root()["tokens"];
  std::vector<int32_t> ids;
  for (size_t i = 0; i < tokens.size(); ++i) {
    ids.push_back(static_cast<int32_t>(tokens.item(i).integer(0, INT32_MAX)));
  }
  return ids;
}

std::string detokenize_json(const std::string& text) {
  return Json{{"prompt", text}, {"content", text}}.dump(-1, ' ', false,
                                                        Json::error_handler_t::replace);
}

}  // namespace lockstep
