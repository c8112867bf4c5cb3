#include "engine/rank/api/chat_completions.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/rank/api/api_error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Json& json_of(const JsonView& view) {
  return *static_cast<const Json*>(view.node());
}

void check_part(const JsonView& part) {
  const JsonView type = part["type"];
  switch (type.one_of({"text", "image_url", "image", "refusal"})) {
    case 0:
      part["text"].text();
      return;
    case 1: {
      const JsonView url = part["image_url"];
      if (!url.is_string()) url["url"].text();
      return;
    }
    default:
      return;
  }
}

void check_content(const JsonView& content, bool may_be_absent) {
  if (!content.given() && may_be_absent) return;
  if (content.is_string()) return;
  if (!content.is_array()) content.refuse("must be a string or a list of parts");
  for (size_t i = 0; i < content.size(); ++i) check_part(content.item(i));
}

void check_tool_calls(const JsonView& calls) {
  if (!calls.given()) return;
  for (size_t i = 0; i < calls.size(); ++i) {
    const JsonView function = calls.item(i)["function"];
    function["name"].text();
    const JsonView arguments = function["arguments"];
    if (arguments.given() && !arguments.is_object()) arguments.text();
  }
}

// The messages as the template sees them.
Json read_messages(const JsonView& messages) {
  if (!messages.given()) messages.refuse("is required");
  if (messages.size() == 0) messages.refuse("must hold at least one message");
  Json result = json_of(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const JsonView message = messages.item(i);
    const size_t role =
        message["role"].one_of({"system", "developer", "user", "assistant", "tool"});
    const bool assistant = role == 3;
    if (role == 1) result[i]["role"] = "system";
    const JsonView calls = message["tool_calls"];
    check_content(message["content"], assistant);
    if (assistant) check_tool_calls(calls);
    if (const JsonView id = message["tool_call_id"]; id.given()) id.text();
  }
  return result;
}

std::vector<std::string> read_tool_names(const JsonView& tools) {
  std::vector<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i) {
    tools.item(i)["type"].one_of({"function"});
    const JsonView function = tools.item(i)["function"];
    const JsonView name = function["name"];
    if (name.text().empty()) name.refuse("must not be empty");
    if (const JsonView parameters = function["parameters"];
        parameters.given() && !parameters.is_object()) {
      parameters.refuse("must be an object");
    }
    names.push_back(name.text());
  }
  return names;
}

ToolChoice read_tool_choice(const JsonView& choice) {
  if (!choice.given()) return {};
  if (choice.is_object()) {
    choice["type"].one_of({"function"});
    return {ToolChoice::Kind::named, choice["function"]["name"].text()};
  }
  const size_t kind = choice.one_of({"auto", "none", "required"});
  const ToolChoice::Kind kinds[] = {ToolChoice::Kind::automatic, ToolChoice::Kind::none,
                                    ToolChoice::Kind::required};
  return {kinds[kind], ""};
}

void read_logprobs(const JsonView& body, GenerationRequest& request) {
  if (const JsonView flag = body["logprobs"]; flag.given()) request.logprobs = flag.flag();
  const JsonView top = body["top_logprobs"];
  if (!top.given()) return;
  request.n_top_logprobs = static_cast<int>(top.integer(0, kMaxTopLogprobs));
  if (!request.logprobs) top.refuse("is only allowed when logprobs is true");
}

void read_max_tokens(const JsonView& body, GenerationRequest& request) {
  for (const char* key : {"max_tokens", "max_completion_tokens"}) {
    const JsonView field = body[key];
    if (field.given()) request.max_tokens = field.integer(1, kMaxTokensLimit);
  }
}

void check_response_format(const JsonView& format) {
  if (!format.given()) return;
  const JsonView type = format["type"];
  if (type.one_of({"text", "json_object", "json_schema"}) != 0) {
    format.refuse("'" + type.text() +
                  "' is not supported: this server does not constrain text; use 'text' and ask "
                  "for JSON in the prompt");
  }
}

// chat_template_kwargs and reasoning_effort as the template sees them: an effort of "none" or
// "minimal" switches thinking off, unless chat_template_kwargs says otherwise.
void read_thinking(const JsonView& body, Json& chat) {
  if (const JsonView kwargs = body["chat_template_kwargs"]; kwargs.given()) {
    if (!kwargs.is_object()) kwargs.refuse("must be an object");
    if (const JsonView thinking = kwargs["enable_thinking"]; thinking.given()) thinking.flag();
    chat["chat_template_kwargs"] = json_of(kwargs);
  }
  const JsonView effort = body["reasoning_effort"];
  if (!effort.given()) return;
  const size_t level = effort.one_of({"none", "minimal", "low", "medium", "high", "xhigh"});
  chat["reasoning_effort"] = effort.text();
  Json& kwargs = chat["chat_template_kwargs"];
  if (kwargs.is_null()) kwargs = Json::object();
  if (level <= 1 && !kwargs.contains("enable_thinking")) kwargs["enable_thinking"] = false;
}

void read_tools(const JsonView& body, Json& chat, GenerationRequest& request) {
  const JsonView tools = body["tools"];
  const ToolChoice choice = read_tool_choice(body["tool_choice"]);
  std::vector<std::string> names;
  if (tools.given()) names = read_tool_names(tools);
  if (!names.empty() && choice.kind != ToolChoice::Kind::none) {
    chat["tools"] = json_of(tools);
    request.tools_json = Json{{"tools", json_of(tools)}}.dump();
  }
  apply_tool_choice(choice, names, request);
  const JsonView parallel = body["parallel_tool_calls"];
  if (parallel.given()) request.one_call_only = !parallel.flag() && !request.tools_json.empty();
}

}  // namespace

void apply_tool_choice(const ToolChoice& choice, const std::vector<std::string>& tool_names,
                       GenerationRequest& request) {
  const bool forced =
      choice.kind == ToolChoice::Kind::required || choice.kind == ToolChoice::Kind::named;
  if (!forced) return;
  if (tool_names.empty()) refuse_field("tool_choice", "is only allowed when tools are given");
  std::string name = choice.name;
  if (choice.kind == ToolChoice::Kind::named &&
      std::find(tool_names.begin(), tool_names.end(), name) == tool_names.end()) {
    refuse_field("tool_choice", fmt::format("names the function '{}', which tools lacks", name));
  }
  if (name.empty() && tool_names.size() == 1) name = tool_names[0];
  request.forced_prefix = "<tool_call>\n<function=" + (name.empty() ? "" : name + ">\n");
}

GenerationRequest parse_chat_completion(std::string_view body_text,
                                        const SamplingParams& defaults) {
  const JsonDocument document(body_text);
  const JsonView body = document.root();
  GenerationRequest request;
  request.sampling = defaults;
  request.split_reasoning = true;
  read_openai_common(body, request);
  read_max_tokens(body, request);
  read_logprobs(body, request);
  check_response_format(body["response_format"]);
  if (const JsonView functions = body["functions"]; functions.given()) {
    functions.refuse("is not supported; use tools");
  }
  Json chat;
  chat["messages"] = read_messages(body["messages"]);
  read_thinking(body, chat);
  read_tools(body, chat, request);
  // A forced call begins where the answer does: there is no room for thought before it.
  if (!request.forced_prefix.empty()) chat["chat_template_kwargs"]["enable_thinking"] = false;
  request.chat_json = chat.dump();
  return request;
}

}  // namespace lockstep
