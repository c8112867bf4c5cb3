#include <nlohmann/json.hpp>

#include "engine/rank/api/responses.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Output items in order: reasoning, message, function calls.
class ResponseFormat final : public AnswerFormat {
 public:
  explicit ResponseFormat(AnswerIdentity identity) : identity_(std::move(identity)) {}

  std::string begin(const AnswerUsage&) override {
    const Json response = response_json("in_progress", Json::array());
    std::string events = event("response.created", {{"response", response}});
    events += event("response.in_progress", {{"response", response}});
    return events;
  }

  std::string piece(const AnswerPiece& piece) override {
    std::string events;
    if (!piece.reasoning.empty()) {
      if (kind_ != Kind::reasoning) events += open(Kind::reasoning, "");
      text_ += piece.reasoning;
      events += part_event("response.reasoning_text.delta", {{"delta", piece.reasoning}});
    }
    for (const ToolEvent& part : piece.events) events += read(part);
    return events;
  }

  std::string end(const AnswerEnd& end) override {
    std::string events = close();
    const bool cut = end.reason == EndReason::length;
    events += event(cut ? "response.incomplete" : "response.completed",
                    {{"response", ended_json(items_, end)}});
    return events;
  }

  std::string whole(const Answer& answer, const AnswerEnd& end) override {
    Json items = Json::array();
    if (!answer.reasoning.empty()) {
      items.push_back(item_json(Kind::reasoning, items.size(), "", answer.reasoning));
    }
    if (!answer.content.empty() || answer.calls.empty()) {
      items.push_back(item_json(Kind::message, items.size(), "", answer.content));
    }
    for (const ToolCall& call : answer.calls) {
      items.push_back(item_json(Kind::call, items.size(), call.name, call.arguments_json));
    }
    return ended_json(items, end).dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  enum class Kind { none, reasoning, message, call };

  std::string item_id(Kind kind, size_t index) const {
    const char* prefix = kind == Kind::reasoning ? "rs_" : (kind == Kind::message ? "msg_" : "fc_");
    return prefix + identity_.request_id + "_" + std::to_string(index);
  }

  Json item_json(Kind kind, size_t index, const std::string& name, const std::string& text,
                 const char* status = "completed") const {
    Json item = {{"id", item_id(kind, index)}};
    switch (kind) {
      case Kind::reasoning:
        item["type"] = "reasoning";
        item["summary"] = Json::array();
        item["content"] = Json::array({{{"type", "reasoning_text"}, {"text", text}}});
        break;
      case Kind::message:
        item["type"] = "message";
        item["role"] = "assistant";
        item["content"] = Json::array({text_part(text)});
        break;
      default:
        item["type"] = "function_call";
        item["call_id"] = tool_call_id(identity_, index);
        item["name"] = name;
        item["arguments"] = text;
    }
    item["status"] = status;
    return item;
  }

  static Json text_part(const std::string& text) {
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }

  std::string read(const ToolEvent& part) {
    std::string events;
    switch (part.kind) {
      case ToolEvent::Kind::content:
        if (kind_ != Kind::message) events += open(Kind::message, "");
        events += part_event("response.output_text.delta",
                             {{"delta", part.text}, {"logprobs", Json::array()}});
        break;
      case ToolEvent::Kind::call:
        return open(Kind::call, part.text);
      case ToolEvent::Kind::arguments:
        events += item_event("response.function_call_arguments.delta", {{"delta", part.text}});
        break;
    }
    text_ += part.text;
    return events;
  }

  std::string open(Kind kind, const std::string& name) {
    std::string events = close();
    kind_ = kind;
    name_ = name;
    text_.clear();
    Json item = item_json(kind, items_.size(), name, "", "in_progress");
    if (kind != Kind::call) item["content"] = Json::array();
    events += event("response.output_item.added",
                    {{"output_index", items_.size()}, {"item", std::move(item)}});
    if (kind == Kind::message) {
      events += part_event("response.content_part.added", {{"part", text_part("")}});
    }
    return events;
  }

  std::string close() {
    if (kind_ == Kind::none) return "";
    std::string events;
    if (kind_ == Kind::message) {
      events +=
          part_event("response.output_text.done", {{"text", text_}, {"logprobs", Json::array()}});
      events += part_event("response.content_part.done", {{"part", text_part(text_)}});
    } else if (kind_ == Kind::call) {
      events += item_event("response.function_call_arguments.done", {{"arguments", text_}});
    } else {
      events += part_event("response.reasoning_text.done", {{"text", text_}});
    }
    Json item = item_json(kind_, items_.size(), name_, text_);
    events += event("response.output_item.done", {{"output_index", items_.size()}, {"item", item}});
    items_.push_back(std::move(item));
    kind_ = Kind::none;
    return events;
  }

  std::string item_event(const char* type, Json members) {
    Json json = {{"item_id", item_id(kind_, items_.size())}, {"output_index", items_.size()}};
    json.update(members);
    return event(type, std::move(json));
  }

  std::string part_event(const char* type, Json members) {
    Json json = {{"content_index", 0}};
    json.update(members);
    return item_event(type, std::move(json));
  }

  std::string event(const char* type, Json members) {
    Json json = {{"type", type}, {"sequence_number", n_events_++}};
    json.update(members);
    return "event: " + std::string(type) +
           "\ndata: " + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
  }

  Json response_json(const char* status, Json output) const {
    return {{"id", "resp_" + identity_.request_id},
            {"object", "response"},
            {"created_at", identity_.created_unix_s},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", nullptr},
            {"metadata", Json::object()},
            {"model", identity_.model},
            {"output", std::move(output)},
            {"parallel_tool_calls", true},
            {"temperature", nullptr},
            {"tool_choice", "auto"},
            {"tools", Json::array()},
            {"top_p", nullptr}};
  }

  Json ended_json(const Json& items, const AnswerEnd& end) const {
    const bool cut = end.reason == EndReason::length;
    Json response = response_json(cut ? "incomplete" : "completed", items);
    if (cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    const AnswerUsage& usage = end.usage;
    response["usage"] = {{"input_tokens", usage.prompt_tokens},
                         {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                         {"output_tokens", usage.completion_tokens},
                         {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
                         {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
    return response;
  }

  AnswerIdentity identity_;
  Kind kind_ = Kind::none;
  std::string name_;
  std::string text_;
  Json items_ = Json::array();
  int64_t n_events_ = 0;
};

}  // namespace

std::unique_ptr<AnswerFormat> response_format(const AnswerIdentity& identity,
                                              const GenerationRequest&) {
  return std::make_unique<ResponseFormat>(identity);
}

}  // namespace lockstep
