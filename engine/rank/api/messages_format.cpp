#include <nlohmann/json.hpp>

#include "engine/rank/api/messages.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

class MessageFormat final : public AnswerFormat {
 public:
  explicit MessageFormat(AnswerIdentity identity) : identity_(std::move(identity)) {}

  std::string begin(const AnswerUsage& usage) override {
    Json message = head();
    message["content"] = Json::array();
    message["stop_reason"] = nullptr;
    message["stop_sequence"] = nullptr;
    message["usage"] = usage_json(usage);
    return event("message_start", {{"message", std::move(message)}});
  }

  std::string piece(const AnswerPiece& piece) override {
    std::string events;
    if (!piece.reasoning.empty()) {
      events += open(Block::thinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
      events += delta({{"type", "thinking_delta"}, {"thinking", piece.reasoning}});
    }
    for (const ToolEvent& part : piece.events) events += read(part);
    return events;
  }

  std::string end(const AnswerEnd& end) override {
    std::string events = close();
    events += event("message_delta", {{"delta", stop_json(end)}, {"usage", usage_json(end.usage)}});
    return events + event("message_stop", Json::object());
  }

  std::string whole(const Answer& answer, const AnswerEnd& end) override {
    Json content = Json::array();
    if (!answer.reasoning.empty()) {
      content.push_back({{"type", "thinking"}, {"thinking", answer.reasoning}, {"signature", ""}});
    }
    if (!answer.content.empty()) content.push_back({{"type", "text"}, {"text", answer.content}});
    for (size_t i = 0; i < answer.calls.size(); ++i) {
      Json block = tool_block(i, answer.calls[i].name);
      block["input"] = Json::parse(answer.calls[i].arguments_json, nullptr, false);
      if (!block["input"].is_object()) block["input"] = Json::object();
      content.push_back(std::move(block));
    }
    Json message = head();
    message["content"] = std::move(content);
    message.update(stop_json(end));
    message["usage"] = usage_json(end.usage);
    return message.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  enum class Block { none, thinking, text, tool_use };

  Json head() const {
    return {{"id", "msg_" + identity_.request_id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", identity_.model}};
  }

  static Json usage_json(const AnswerUsage& usage) {
    return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage.cached_tokens},
            {"output_tokens", usage.completion_tokens}};
  }

  static Json stop_json(const AnswerEnd& end) {
    switch (end.reason) {
      case EndReason::length:
        return {{"stop_reason", "max_tokens"}, {"stop_sequence", nullptr}};
      case EndReason::tool_calls:
        return {{"stop_reason", "tool_use"}, {"stop_sequence", nullptr}};
      case EndReason::stop_string:
        return {{"stop_reason", "stop_sequence"}, {"stop_sequence", end.stop_string}};
      default:
        return {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
    }
  }

  Json tool_block(size_t index, const std::string& name) const {
    return {{"type", "tool_use"},
            {"id", "toolu_" + identity_.request_id + "_" + std::to_string(index)},
            {"name", name},
            {"input", Json::object()}};
  }

  std::string read(const ToolEvent& part) {
    std::string events;
    switch (part.kind) {
      case ToolEvent::Kind::content:
        events += open(Block::text, {{"type", "text"}, {"text", ""}});
        events += delta({{"type", "text_delta"}, {"text", part.text}});
        break;
      case ToolEvent::Kind::call:
        events += close();
        events += open(Block::tool_use, tool_block(part.index, part.text));
        break;
      case ToolEvent::Kind::arguments:
        events += delta({{"type", "input_json_delta"}, {"partial_json", part.text}});
        break;
    }
    return events;
  }

  // Starts a block of this kind unless one is open.
  std::string open(Block kind, Json block) {
    if (open_ == kind) return "";
    std::string events = close();
    open_ = kind;
    return events + event("content_block_start",
                          {{"index", n_blocks_}, {"content_block", std::move(block)}});
  }

  std::string close() {
    if (open_ == Block::none) return "";
    open_ = Block::none;
    return event("content_block_stop", {{"index", n_blocks_++}});
  }

  std::string delta(Json change) const {
    return event("content_block_delta", {{"index", n_blocks_}, {"delta", std::move(change)}});
  }

  static std::string event(const char* type, Json members) {
    Json json = {{"type", type}};
    json.update(members);
    return "event: " + std::string(type) +
           "\ndata: " + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
  }

  AnswerIdentity identity_;
  Block open_ = Block::none;
  size_t n_blocks_ = 0;
};

}  // namespace

std::unique_ptr<AnswerFormat> message_format(const AnswerIdentity& identity,
                                             const GenerationRequest&) {
  return std::make_unique<MessageFormat>(identity);
}

}  // namespace lockstep
