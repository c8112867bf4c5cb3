#include "engine/serve/error_body.h"

#include <nlohmann/json.hpp>

namespace lockstep::serve {

using Json = nlohmann::ordered_json;

std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find('?'));
}

bool is_anthropic_path(std::string_view target) {
  return path_of(target).starts_with("/v1/messages");
}

std::string error_json(std::string_view target, const Refusal& refusal) {
  Json json;
  if (is_anthropic_path(target)) {
    json = {{"type", "error"}, {"error", {{"type", refusal.type}, {"message", refusal.message}}}};
  } else {
    json = {{"error",
             {{"message", refusal.message},
              {"type", refusal.type},
              {"param", nullptr},
              {"code", nullptr}}}};
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string error_event(std::string_view target, const Refusal& refusal) {
  const std::string name = is_anthropic_path(target) ? "event: error\n" : "";
  return name + "data: " + error_json(target, refusal) + "\n\n";
}

}  // namespace lockstep::serve
