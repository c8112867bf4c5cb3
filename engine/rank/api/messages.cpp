#include "engine/rank/api/messages.h"

#include <nlohmann/json.hpp>

#include "engine/rank/api/chat_completions.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMinThinkingBudget = 1024;

const Json& json_of(const JsonView& view) {
  return *static_cast<const Json*>(view.node());
}

Json image_part(const JsonView& block) {
  const JsonView source = block["source"];
  const JsonView type = source["type"];
  if (type.one_of({"base64", "url"}) == 1) {
    const std::string& url = source["url"].text();
    return {{"type", "image_url"}, {"image_url", {{"url", url}}}};
  }
  const std::string url =
      "data:" + source["media_type"].text() + ";base64," + source["data"].text();
  return {{"type", "image_url"}, {"image_url", {{"url", url}}}};
}

// Text or a list of text and image blocks, as parts; `join`: as one text.
std::string joined_text(const JsonView& content) {
  if (content.is_string()) return content.text();
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    content.item(i)["type"].one_of({"text"});
    text += (i == 0 ? "" : "\n") + content.item(i)["text"].text();
  }
  return text;
}

Json tool_message(const JsonView& block) {
  Json message = {{"role", "tool"}, {"tool_call_id", block["tool_use_id"].text()}};
  const JsonView content = block["content"];
  if (!content.given()) {
    message["content"] = "";
  } else if (content.is_string()) {
    message["content"] = content.text();
  } else {
    Json parts = Json::array();
    for (size_t i = 0; i < content.size(); ++i) {
      const JsonView part = content.item(i);
      const bool image = part["type"].one_of({"text", "image"}) == 1;
      parts.push_back(image ? image_part(part)
                            : Json{{"type", "text"}, {"text", part["text"].text()}});
    }
    message["content"] = std::move(parts);
  }
  if (const JsonView error = block["is_error"]; error.given()) error.flag();
  return message;
}

// Results of tools become messages of their own, in their place.
void read_user(const JsonView& content, Json& messages) {
  if (content.is_string()) {
    messages.push_back({{"role", "user"}, {"content", content.text()}});
    return;
  }
  if (content.size() == 0) content.refuse("must hold at least one block");
  Json parts = Json::array();
  const auto flush = [&] {
    if (!parts.empty()) messages.push_back({{"role", "user"}, {"content", std::move(parts)}});
    parts = Json::array();
  };
  for (size_t i = 0; i < content.size(); ++i) {
    const JsonView block = content.item(i);
    switch (block["type"].one_of({"text", "image", "tool_result"})) {
      case 0:
        parts.push_back({{"type", "text"}, {"text", block["text"].text()}});
        break;
      case 1:
        parts.push_back(image_part(block));
        break;
      default:
        flush();
        messages.push_back(tool_message(block));
    }
  }
  flush();
}

Json tool_call(const JsonView& block) {
  const JsonView input = block["input"];
  if (!input.is_object()) input.refuse("must be an object");
  return {{"id", block["id"].text()},
          {"type", "function"},
          {"function", {{"name", block["name"].text()}, {"arguments", json_of(input)}}}};
}

void read_assistant(const JsonView& content, Json& messages) {
  Json message = {{"role", "assistant"}, {"content", ""}};
  std::string text;
  if (content.is_string()) {
    text = content.text();
  } else {
    for (size_t i = 0; i < content.size(); ++i) {
      const JsonView block = content.item(i);
      switch (block["type"].one_of({"text", "tool_use", "thinking", "redacted_thinking"})) {
        case 0:
          text += block["text"].text();
          break;
        case 1:
          message["tool_calls"].push_back(tool_call(block));
          break;
        case 2:
          message["reasoning_content"] = block["thinking"].text();
          break;
        default:
          break;
      }
    }
  }
  message["content"] = text;
  messages.push_back(std::move(message));
}

Json read_messages(const JsonView& body) {
  Json messages = Json::array();
  if (const JsonView system = body["system"]; system.given()) {
    messages.push_back({{"role", "system"}, {"content", joined_text(system)}});
  }
  const JsonView list = body["messages"];
  if (!list.given()) list.refuse("is required");
  if (list.size() == 0) list.refuse("must hold at least one message");
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonView message = list.item(i);
    const bool assistant = message["role"].one_of({"user", "assistant"}) == 1;
    const JsonView content = message["content"];
    if (!content.is_string() && !content.is_array()) {
      content.refuse("must be a string or a list of blocks");
    }
    assistant ? read_assistant(content, messages) : read_user(content, messages);
  }
  return messages;
}

// A last message of the assistant is a beginning that the answer goes on from.
void take_beginning(Json& messages, GenerationRequest& request) {
  const Json& last = messages.back();
  if (last["role"] != "assistant" || last.contains("tool_calls")) return;
  request.forced_prefix = last["content"].get<std::string>();
  request.prefix_in_answer = false;
  messages.erase(messages.size() - 1);
}

void read_tools(const JsonView& body, Json& chat, GenerationRequest& request) {
  const JsonView tools = body["tools"];
  std::vector<std::string> names;
  Json list = Json::array();
  for (size_t i = 0; tools.given() && i < tools.size(); ++i) {
    const JsonView tool = tools.item(i);
    if (const JsonView type = tool["type"]; type.given()) type.one_of({"custom"});
    Json function = {{"name", tool["name"].text()}};
    if (const JsonView text = tool["description"]; text.given()) {
      function["description"] = text.text();
    }
    const JsonView schema = tool["input_schema"];
    if (!schema.is_object()) schema.refuse("must be an object");
    function["parameters"] = json_of(schema);
    names.push_back(tool["name"].text());
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  ToolChoice choice;
  bool one_call = false;
  if (const JsonView asked = body["tool_choice"]; asked.given()) {
    const ToolChoice::Kind kinds[] = {ToolChoice::Kind::automatic, ToolChoice::Kind::required,
                                      ToolChoice::Kind::named, ToolChoice::Kind::none};
    choice.kind = kinds[asked["type"].one_of({"auto", "any", "tool", "none"})];
    if (choice.kind == ToolChoice::Kind::named) choice.name = asked["name"].text();
    const JsonView alone = asked["disable_parallel_tool_use"];
    one_call = alone.given() && alone.flag();
  }
  if (!names.empty() && choice.kind != ToolChoice::Kind::none) {
    chat["tools"] = list;
    request.tools_json = Json{{"tools", list}}.dump();
    request.one_call_only = one_call;
  }
  apply_tool_choice(choice, names, request);
}

bool read_thinking(const JsonView& thinking, const std::optional<int64_t>& max_tokens) {
  if (!thinking.given()) return false;
  const size_t type = thinking["type"].one_of({"enabled", "disabled", "adaptive"});
  if (type == 0) {
    const JsonView budget = thinking["budget_tokens"];
    const int64_t n = budget.integer(kMinThinkingBudget, kMaxTokensLimit);
    if (max_tokens && n >= *max_tokens) budget.refuse("must be less than max_tokens");
  }
  return type != 1;
}

void read_sampling(const JsonView& body, GenerationRequest& request) {
  SamplingParams& params = request.sampling;
  const auto read = [&](const char* key, float& value) {
    const JsonView field = body[key];
    if (field.given()) value = static_cast<float>(field.number(0.0, 1.0));
  };
  read("temperature", params.temperature);
  read("top_p", params.top_p);
  if (const JsonView top_k = body["top_k"]; top_k.given()) {
    params.top_k = static_cast<int32_t>(top_k.integer(0, INT32_MAX));
  }
  request.stops = read_stops(body["stop_sequences"]);
}

GenerationRequest parse(std::string_view body_text, const SamplingParams& defaults,
                        bool needs_max_tokens) {
  const JsonDocument document(body_text);
  const JsonView body = document.root();
  GenerationRequest request;
  request.sampling = defaults;
  request.split_reasoning = true;
  if (const JsonView model = body["model"]; model.given()) request.model = model.text();
  const JsonView max_tokens = body["max_tokens"];
  if (max_tokens.given()) {
    request.max_tokens = max_tokens.integer(1, kMaxTokensLimit);
  } else if (needs_max_tokens) {
    max_tokens.refuse("is required");
  }
  if (const JsonView stream = body["stream"]; stream.given()) request.stream = stream.flag();
  read_sampling(body, request);
  Json chat;
  chat["messages"] = read_messages(body);
  bool thinks = read_thinking(body["thinking"], request.max_tokens);
  read_tools(body, chat, request);
  if (request.forced_prefix.empty()) take_beginning(chat["messages"], request);
  if (!request.forced_prefix.empty()) thinks = false;
  chat["chat_template_kwargs"] = {{"enable_thinking", thinks}};
  request.chat_json = chat.dump();
  return request;
}

}  // namespace

GenerationRequest parse_message(std::string_view body, const SamplingParams& defaults) {
  return parse(body, defaults, true);
}

GenerationRequest parse_count_tokens(std::string_view body, const SamplingParams& defaults) {
  return parse(body, defaults, false);
}

std::string count_tokens_json(int64_t n_tokens) {
  return Json{{"input_tokens", n_tokens}}.dump();
}

}  // namespace lockstep
