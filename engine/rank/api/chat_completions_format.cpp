#include <nlohmann/json.hpp>

#include "engine/rank/api/chat_completions.h"
#include "engine/rank/api/openai_json.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(AnswerIdentity identity, const GenerationRequest& request)
      : identity_(std::move(identity)),
        logprobs_(request.logprobs),
        include_usage_(request.include_usage) {}

  std::string begin(const AnswerUsage&) override {
    return event(choice({{"role", "assistant"}, {"content", ""}}));
  }

  std::string piece(const AnswerPiece& piece) override {
    std::string events;
    Json logprobs = logprobs_json(piece.logprobs);
    const auto add = [&](Json delta) {
      Json one = choice(std::move(delta));
      if (logprobs_ && !logprobs.empty()) {
        one["logprobs"] = {{"content", std::exchange(logprobs, Json::array())}};
      }
      events += event(std::move(one));
    };
    if (!piece.reasoning.empty()) add({{"reasoning_content", piece.reasoning}});
    for (const ToolEvent& part : piece.events) add(delta_of(part));
    if (logprobs_ && !logprobs.empty()) add({{"content", ""}});
    return events;
  }

  std::string end(const AnswerEnd& end) override {
    Json last = choice(Json::object());
    last["finish_reason"] = openai_finish_reason(end.reason);
    std::string events = event(std::move(last));
    if (include_usage_) {
      Json chunk = head("chat.completion.chunk");
      chunk["choices"] = Json::array();
      chunk["usage"] = Json::parse(openai_usage_json(end.usage));
      events += to_event(chunk);
    }
    return events + "data: [DONE]\n\n";
  }

  std::string whole(const Answer& answer, const AnswerEnd& end) override {
    Json message = {{"role", "assistant"}, {"content", nullptr}};
    if (!answer.content.empty() || answer.calls.empty()) message["content"] = answer.content;
    if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
    for (size_t i = 0; i < answer.calls.size(); ++i) {
      message["tool_calls"].push_back(call_json(i, answer.calls[i]));
    }
    Json one = {{"index", 0}, {"message", std::move(message)}, {"logprobs", nullptr}};
    if (logprobs_) one["logprobs"] = {{"content", logprobs_json(answer.logprobs)}};
    one["finish_reason"] = openai_finish_reason(end.reason);
    Json body = head("chat.completion");
    body["choices"] = Json::array({std::move(one)});
    body["usage"] = Json::parse(openai_usage_json(end.usage));
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  Json head(const char* object) const {
    return {{"id", "chatcmpl-" + identity_.request_id},
            {"object", object},
            {"created", identity_.created_unix_s},
            {"model", identity_.model},
            {"system_fingerprint", identity_.fingerprint}};
  }

  static Json choice(Json delta) {
    return {{"index", 0},
            {"delta", std::move(delta)},
            {"logprobs", nullptr},
            {"finish_reason", nullptr}};
  }

  std::string event(Json one) const {
    Json chunk = head("chat.completion.chunk");
    chunk["choices"] = Json::array({std::move(one)});
    if (include_usage_) chunk["usage"] = nullptr;
    return to_event(chunk);
  }

  static std::string to_event(const Json& json) {
    return "data: " + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
  }

  Json call_json(size_t index, const ToolCall& call) const {
    return {{"id", tool_call_id(identity_, index)},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", call.arguments_json}}}};
  }

  Json delta_of(const ToolEvent& part) const {
    Json call;
    switch (part.kind) {
      case ToolEvent::Kind::content:
        return {{"content", part.text}};
      case ToolEvent::Kind::call:
        call = call_json(part.index, {part.text, ""});
        break;
      case ToolEvent::Kind::arguments:
        call = {{"function", {{"arguments", part.text}}}};
        break;
    }
    Json indexed = {{"index", part.index}};
    indexed.update(call);
    return {{"tool_calls", Json::array({std::move(indexed)})}};
  }

  Json logprobs_json(const std::vector<TokenLogprob>& entries) const {
    return Json::parse(openai_logprobs_json(entries));
  }

  AnswerIdentity identity_;
  bool logprobs_;
  bool include_usage_;
};

}  // namespace

std::unique_ptr<AnswerFormat> chat_completion_format(const AnswerIdentity& identity,
                                                     const GenerationRequest& request) {
  return std::make_unique<ChatFormat>(identity, request);
}

}  // namespace lockstep
