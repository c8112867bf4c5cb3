// Types of parameters, and the JSON of calls.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/text/tool_parser.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

std::string type_of_value(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "boolean";
  if (value.is_number_integer()) return "integer";
  if (value.is_number()) return "number";
  if (value.is_string()) return "string";
  return value.is_array() ? "array" : "object";
}

// The JSON types that a schema allows, as far as it says so in its own words.
std::set<std::string> types_of_schema(const Json& schema) {
  constexpr int kMaxAlternatives = 64;
  std::set<std::string> types;
  if (!schema.is_object()) return types;
  const Json type = schema.value("type", Json());
  if (type.is_string()) types.insert(type.get<std::string>());
  if (type.is_array()) {
    for (const Json& entry : type) {
      if (entry.is_string()) types.insert(entry.get<std::string>());
    }
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const auto found = schema.find(key);
    if (found == schema.end() || !found->is_array()) continue;
    int n = 0;
    for (const Json& alternative : *found) {
      if (++n > kMaxAlternatives || !alternative.is_object()) break;
      const Json inner = alternative.value("type", Json());
      if (inner.is_string()) types.insert(inner.get<std::string>());
    }
  }
  const auto values = schema.find("enum");
  if (types.empty() && values != schema.end() && values->is_array()) {
    for (const Json& value : *values) types.insert(type_of_value(value));
  }
  return types;
}

bool type_allows(const std::set<std::string>& types, const Json& value) {
  const std::string type = type_of_value(value);
  if (types.contains(type)) return true;
  if (type == "integer") return types.contains("number");
  // 5.0 is an integer in JSON Schema.
  return type == "number" && types.contains("integer") &&
         value.get<double>() == std::floor(value.get<double>());
}

std::string text_json(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

struct ToolSchemas::State {
  // function -> parameter -> types
  std::map<std::string, std::map<std::string, std::set<std::string>>> functions;
};

ToolSchemas::ToolSchemas() : state_(std::make_shared<State>()) {}
ToolSchemas::~ToolSchemas() = default;
ToolSchemas::ToolSchemas(const ToolSchemas&) = default;
ToolSchemas& ToolSchemas::operator=(const ToolSchemas&) = default;

ToolSchemas ToolSchemas::from_request(std::string_view body_json) {
  const Json body = Json::parse(body_json, nullptr, false);
  if (!body.is_object()) fail("the request: not a JSON object");
  auto state = std::make_shared<State>();
  const Json tools = body.value("tools", Json());
  for (const Json& tool : tools.is_array() ? tools : Json::array()) {
    if (!tool.is_object()) continue;
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      continue;
    auto& parameters = state->functions[function["name"].get<std::string>()];
    const Json schema = function.value("parameters", Json());
    const Json properties = schema.is_object() ? schema.value("properties", Json()) : Json();
    if (!properties.is_object()) continue;
    for (const auto& [name, property] : properties.items())
      parameters[name] = types_of_schema(property);
  }
  ToolSchemas schemas;
  schemas.state_ = std::move(state);
  return schemas;
}

std::string ToolSchemas::value_json(const std::string& function, const std::string& parameter,
                                    std::string_view text) const {
  const auto tool = state_->functions.find(function);
  if (tool == state_->functions.end()) return text_json(text);
  const auto found = tool->second.find(parameter);
  if (found == tool->second.end() || found->second.empty()) return text_json(text);
  const std::set<std::string>& types = found->second;
  const Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) return text_json(text);
  // With a string allowed, only null is told apart: any other text is more likely meant as it
  // stands.
  if (types.contains("string") && !(value.is_null() && types.contains("null")))
    return text_json(text);
  if (!type_allows(types, value)) return text_json(text);
  // The text itself rather than the parsed value: numbers keep all their digits.
  const size_t first = text.find_first_not_of(" \n\t\r");
  const size_t last = text.find_last_not_of(" \n\t\r");
  return std::string(text.substr(first, last - first + 1));
}

void ToolParser::give_call(std::vector<ToolEvent>& events) {
  blank_.clear();
  std::string arguments = "{";
  for (size_t i = 0; i < call_.parameters.size(); ++i) {
    const Parameter& parameter = call_.parameters[i];
    // Of a parameter given twice the last counts.
    const bool again =
        std::any_of(call_.parameters.begin() + static_cast<int64_t>(i) + 1, call_.parameters.end(),
                    [&](const Parameter& later) { return later.key == parameter.key; });
    if (again) continue;
    if (arguments.size() > 1) arguments += ", ";
    arguments += text_json(parameter.key) + ": " +
                 schemas_.value_json(call_.name, parameter.key, parameter.text);
  }
  events.push_back({ToolEvent::Kind::call, n_calls_, call_.name});
  events.push_back({ToolEvent::Kind::arguments, n_calls_, arguments + "}"});
  ++n_calls_;
}

ParsedTools parse_tools(std::string_view text, const ToolSchemas& schemas) {
  ToolParser parser(schemas);
  ParsedTools parsed;
  std::vector<ToolEvent> events = parser.push(text);
  for (ToolEvent& event : parser.finish()) events.push_back(std::move(event));
  for (const ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::content:
        parsed.content += event.text;
        break;
      case ToolEvent::Kind::call:
        parsed.calls.push_back({event.text, ""});
        break;
      case ToolEvent::Kind::arguments:
        parsed.calls[event.index].arguments_json += event.text;
        break;
    }
  }
  return parsed;
}

}  // namespace lockstep
