#include "engine/text/chat_request.h"

#include "engine/base/error.h"
#include "engine/text/jinja/context.h"

namespace lockstep {
namespace {

using jinja::Dict;
using jinja::Kind;
using jinja::Runtime;
using jinja::Scope;
using jinja::Value;

// The member of an object, null when it is absent or null.
const Value* member(const Value& object, std::string_view name) {
  const Value* found = object.is(Kind::dict) ? object.dict->find(name) : nullptr;
  return found == nullptr || found->is(Kind::none) ? nullptr : found;
}

void parse_arguments(Runtime& runtime, const Value& function, const std::string& where) {
  const Value* arguments = member(function, "arguments");
  if (arguments == nullptr || arguments->is(Kind::dict)) return;
  if (!arguments->is(Kind::string)) fail("{}.arguments: neither an object nor JSON text", where);
  const std::string& text = *arguments->string;
  const Value parsed =
      jinja::value_of_json(runtime, text.empty() ? "{}" : text, where + ".arguments");
  if (!parsed.is(Kind::dict)) fail("{}.arguments: the JSON text is not an object", where);
  function.dict->set(runtime.arena.add("arguments"), parsed);
}

void parse_tool_calls(Runtime& runtime, const Value& message, const std::string& where) {
  const Value* calls = member(message, "tool_calls");
  if (calls == nullptr) return;
  if (!calls->is(Kind::list)) fail("{}.tool_calls: not a list", where);
  for (size_t i = 0; i < calls->list->items.size(); ++i) {
    const Value& call = calls->list->items[i];
    const std::string place = fmt::format("{}.tool_calls[{}]", where, i);
    if (!call.is(Kind::dict)) fail("{}: not an object", place);
    const Value* function = member(call, "function");
    if (function != nullptr && !function->is(Kind::dict)) fail("{}.function: not an object", place);
    if (function != nullptr) {
      parse_arguments(runtime, *function, place + ".function");
    } else {
      parse_arguments(runtime, call, place);
    }
  }
}

Value checked_messages(Runtime& runtime, const Value& body) {
  const Value* messages = member(body, "messages");
  if (messages == nullptr) fail("the request has no messages");
  if (!messages->is(Kind::list) || messages->list->items.empty()) {
    fail("the request's messages are not a list with at least one message");
  }
  for (size_t i = 0; i < messages->list->items.size(); ++i) {
    const Value& message = messages->list->items[i];
    const std::string where = fmt::format("messages[{}]", i);
    const Value* role = member(message, "role");
    if (role == nullptr || !role->is(Kind::string)) fail("{}: not an object with a role", where);
    parse_tool_calls(runtime, message, where);
  }
  return *messages;
}

Value checked_tools(const Value& body) {
  const Value* tools = member(body, "tools");
  if (tools == nullptr) return Value::none();
  if (!tools->is(Kind::list)) fail("tools: not a list");
  for (size_t i = 0; i < tools->list->items.size(); ++i) {
    if (!tools->list->items[i].is(Kind::dict)) fail("tools[{}]: not an object", i);
  }
  return *tools;
}

void add_chat_variables(Runtime& runtime, std::string_view body_json, Scope* scope) {
  const Value body = jinja::value_of_json(runtime, body_json, "the request");
  if (!body.is(Kind::dict)) fail("the request: not a JSON object");
  scope->set("documents", Value::none());
  scope->set("add_generation_prompt", Value::of(true));
  if (const Value* effort = member(body, "reasoning_effort"))
    scope->set("reasoning_effort", *effort);
  if (const Value* extra = member(body, "chat_template_kwargs")) {
    if (!extra->is(Kind::dict)) fail("chat_template_kwargs: not an object");
    for (const auto& [key, value] : extra->dict->entries) {
      if (*key == "messages" || *key == "tools") {
        fail("chat_template_kwargs.{}: belongs into the request itself", *key);
      }
      scope->set(*key, value);
    }
  }
  scope->set("messages", checked_messages(runtime, body));
  scope->set("tools", checked_tools(body));
}

}  // namespace

std::string render_chat(const ChatTemplate& chat_template, std::string_view body_json,
                        std::optional<int64_t> now_unix_s) {
  return chat_template.render_with(
      [&](Runtime& runtime, Scope* scope) { add_chat_variables(runtime, body_json, scope); },
      now_unix_s);
}

}  // namespace lockstep
