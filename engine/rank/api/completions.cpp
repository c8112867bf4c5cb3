#include "engine/rank/api/completions.h"

#include <nlohmann/json.hpp>

#include "engine/rank/api/api_error.h"
#include "engine/rank/api/openai_json.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultMaxTokens = 16;

std::vector<int32_t> read_ids(const JsonView& list) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    ids.push_back(static_cast<int32_t>(list.item(i).integer(0, INT32_MAX)));
  }
  return ids;
}

void read_prompt(const JsonView& prompt, GenerationRequest& request) {
  if (!prompt.given()) prompt.refuse("is required");
  if (prompt.is_string()) {
    request.prompt_text = prompt.text();
    return;
  }
  if (!prompt.is_array()) prompt.refuse("must be a string or a list of token ids");
  if (prompt.size() == 0) prompt.refuse("is empty");
  const JsonView first = prompt.item(0);
  if (first.is_integer()) {
    request.prompt_ids = read_ids(prompt);
    return;
  }
  if (prompt.size() > 1) prompt.refuse("only 1 prompt a request is supported");
  if (first.is_string()) {
    request.prompt_text = first.text();
  } else {
    request.prompt_ids = read_ids(first);
  }
}

class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(AnswerIdentity identity, const GenerationRequest& request)
      : identity_(std::move(identity)),
        logprobs_(request.logprobs),
        include_usage_(request.include_usage) {}

  std::string begin(const AnswerUsage&) override { return ""; }

  std::string piece(const AnswerPiece& piece) override {
    std::string text;
    for (const ToolEvent& event : piece.events) text += event.text;
    if (text.empty() && piece.logprobs.empty()) return "";
    return event(choice(text, piece.logprobs, nullptr));
  }

  std::string end(const AnswerEnd& end) override {
    std::string events = event(choice("", {}, openai_finish_reason(end.reason)));
    if (include_usage_) {
      Json chunk = head();
      chunk["choices"] = Json::array();
      chunk["usage"] = Json::parse(openai_usage_json(end.usage));
      events += to_event(chunk);
    }
    return events + "data: [DONE]\n\n";
  }

  std::string whole(const Answer& answer, const AnswerEnd& end) override {
    Json body = head();
    body["choices"] =
        Json::array({choice(answer.content, answer.logprobs, openai_finish_reason(end.reason))});
    body["usage"] = Json::parse(openai_usage_json(end.usage));
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  Json head() const {
    return {{"id", "cmpl-" + identity_.request_id},
            {"object", "text_completion"},
            {"created", identity_.created_unix_s},
            {"model", identity_.model},
            {"system_fingerprint", identity_.fingerprint}};
  }

  Json choice(const std::string& text, const std::vector<TokenLogprob>& logprobs,
              const char* finish_reason) {
    Json json = {{"text", text}, {"index", 0}, {"logprobs", nullptr}};
    if (logprobs_) json["logprobs"] = logprobs_json(logprobs);
    json["finish_reason"] = finish_reason == nullptr ? Json(nullptr) : Json(finish_reason);
    return json;
  }

  // The form of this endpoint: parallel lists. Offsets count characters of the answer.
  Json logprobs_json(const std::vector<TokenLogprob>& entries) {
    Json json = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
    for (const TokenLogprob& entry : entries) {
      const std::string token = replace_invalid_utf8(entry.bytes);
      Json top = Json::object();
      for (const auto& [bytes, logprob] : entry.top) top[replace_invalid_utf8(bytes)] = logprob;
      json["tokens"].push_back(token);
      json["token_logprobs"].push_back(entry.logprob);
      json["top_logprobs"].push_back(std::move(top));
      json["text_offset"].push_back(offset_);
      offset_ += count_code_points(token);
    }
    return json;
  }

  std::string event(Json one) const {
    Json chunk = head();
    chunk["choices"] = Json::array({std::move(one)});
    if (include_usage_) chunk["usage"] = nullptr;
    return to_event(chunk);
  }

  static std::string to_event(const Json& json) {
    return "data: " + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
  }

  AnswerIdentity identity_;
  bool logprobs_;
  bool include_usage_;
  size_t offset_ = 0;
};

}  // namespace

GenerationRequest parse_completion(std::string_view body_text, const SamplingParams& defaults) {
  const JsonDocument document(body_text);
  const JsonView body = document.root();
  GenerationRequest request;
  request.sampling = defaults;
  read_openai_common(body, request);
  read_prompt(body["prompt"], request);
  if (const JsonView suffix = body["suffix"]; suffix.given() && !suffix.text().empty()) {
    suffix.refuse("is not supported");
  }
  const JsonView max_tokens = body["max_tokens"];
  request.max_tokens =
      max_tokens.given() ? max_tokens.integer(1, kMaxTokensLimit) : kDefaultMaxTokens;
  if (const JsonView logprobs = body["logprobs"]; logprobs.given()) {
    request.logprobs = true;
    request.n_top_logprobs = static_cast<int>(logprobs.integer(0, kMaxTopLogprobs));
  }
  return request;
}

std::unique_ptr<AnswerFormat> completion_format(const AnswerIdentity& identity,
                                                const GenerationRequest& request) {
  return std::make_unique<CompletionFormat>(identity, request);
}

}  // namespace lockstep
