#include "engine/rank/api/responses.h"

#include <nlohmann/json.hpp>

#include "engine/rank/api/chat_completions.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Json& json_of(const JsonView& view) {
  return *static_cast<const Json*>(view.node());
}

Json content_of(const JsonView& content) {
  if (content.is_string()) return content.text();
  Json parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const JsonView part = content.item(i);
    if (part["type"].one_of({"input_text", "output_text", "input_image"}) == 2) {
      parts.push_back({{"type", "image_url"}, {"image_url", {{"url", part["image_url"].text()}}}});
    } else {
      parts.push_back({{"type", "text"}, {"text", part["text"].text()}});
    }
  }
  return parts;
}

void read_message(const JsonView& item, Json& messages) {
  const size_t role = item["role"].one_of({"user", "assistant", "system", "developer"});
  const char* roles[] = {"user", "assistant", "system", "system"};
  messages.push_back({{"role", roles[role]}, {"content", content_of(item["content"])}});
}

// Calls that follow one another are one turn of the assistant.
void read_call(const JsonView& item, Json& messages) {
  const bool continues = !messages.empty() && messages.back()["role"] == "assistant";
  if (!continues) messages.push_back({{"role", "assistant"}, {"content", ""}});
  messages.back()["tool_calls"].push_back(
      {{"id", item["call_id"].text()},
       {"type", "function"},
       {"function", {{"name", item["name"].text()}, {"arguments", item["arguments"].text()}}}});
}

void read_input(const JsonView& input, Json& messages) {
  if (!input.given()) input.refuse("is required");
  if (input.is_string()) {
    messages.push_back({{"role", "user"}, {"content", input.text()}});
    return;
  }
  if (input.size() == 0) input.refuse("is empty");
  for (size_t i = 0; i < input.size(); ++i) {
    const JsonView item = input.item(i);
    const JsonView type = item["type"];
    const size_t kind =
        type.given()
            ? type.one_of({"message", "function_call", "function_call_output", "reasoning"})
            : 0;
    if (kind == 0) read_message(item, messages);
    if (kind == 1) read_call(item, messages);
    if (kind == 2) {
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", item["call_id"].text()},
                          {"content", content_of(item["output"])}});
    }
  }
}

void refuse_state(const JsonView& body) {
  for (const char* key : {"previous_response_id", "conversation", "prompt"}) {
    const JsonView field = body[key];
    if (field.given()) field.refuse("is not supported: this server keeps no responses");
  }
  const JsonView background = body["background"];
  if (background.given() && background.flag()) background.refuse("is not supported");
  if (const JsonView text = body["text"]; text.given()) {
    const JsonView format = text["format"];
    if (format.given() && format["type"].one_of({"text", "json_object", "json_schema"}) != 0) {
      format.refuse("is not supported: this server does not constrain text; use 'text'");
    }
  }
}

ToolChoice read_tool_choice(const JsonView& choice) {
  if (!choice.given()) return {};
  if (choice.is_object()) {
    choice["type"].one_of({"function"});
    return {ToolChoice::Kind::named, choice["name"].text()};
  }
  const ToolChoice::Kind kinds[] = {ToolChoice::Kind::automatic, ToolChoice::Kind::none,
                                    ToolChoice::Kind::required};
  return {kinds[choice.one_of({"auto", "none", "required"})], ""};
}

void read_tools(const JsonView& body, Json& chat, GenerationRequest& request) {
  const JsonView tools = body["tools"];
  std::vector<std::string> names;
  Json list = Json::array();
  for (size_t i = 0; tools.given() && i < tools.size(); ++i) {
    const JsonView tool = tools.item(i);
    tool["type"].one_of({"function"});
    Json function = {{"name", tool["name"].text()}};
    if (const JsonView text = tool["description"]; text.given()) {
      function["description"] = text.text();
    }
    if (const JsonView parameters = tool["parameters"]; parameters.given()) {
      if (!parameters.is_object()) parameters.refuse("must be an object");
      function["parameters"] = json_of(parameters);
    }
    names.push_back(tool["name"].text());
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  const ToolChoice choice = read_tool_choice(body["tool_choice"]);
  if (!names.empty() && choice.kind != ToolChoice::Kind::none) {
    chat["tools"] = list;
    request.tools_json = Json{{"tools", list}}.dump();
    const JsonView parallel = body["parallel_tool_calls"];
    request.one_call_only = parallel.given() && !parallel.flag();
  }
  apply_tool_choice(choice, names, request);
}

void read_thinking(const JsonView& body, Json& chat) {
  const JsonView reasoning = body["reasoning"];
  if (!reasoning.given()) return;
  const JsonView effort = reasoning["effort"];
  if (!effort.given()) return;
  const size_t level = effort.one_of({"none", "minimal", "low", "medium", "high", "xhigh"});
  chat["reasoning_effort"] = effort.text();
  if (level <= 1) chat["chat_template_kwargs"]["enable_thinking"] = false;
}

}  // namespace

GenerationRequest parse_response(std::string_view body_text, const SamplingParams& defaults) {
  const JsonDocument document(body_text);
  const JsonView body = document.root();
  GenerationRequest request;
  request.sampling = defaults;
  request.split_reasoning = true;
  refuse_state(body);
  read_openai_common(body, request);
  const JsonView limit = body["max_output_tokens"];
  if (limit.given()) request.max_tokens = limit.integer(1, kMaxTokensLimit);
  Json chat;
  chat["messages"] = Json::array();
  if (const JsonView system = body["instructions"]; system.given()) {
    chat["messages"].push_back({{"role", "system"}, {"content", system.text()}});
  }
  read_input(body["input"], chat["messages"]);
  read_thinking(body, chat);
  read_tools(body, chat, request);
  if (!request.forced_prefix.empty()) chat["chat_template_kwargs"]["enable_thinking"] = false;
  request.chat_json = chat.dump();
  return request;
}

}  // namespace lockstep
