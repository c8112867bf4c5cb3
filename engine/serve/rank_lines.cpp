#include "engine/serve/rank_lines.h"

#include <nlohmann/json.hpp>

namespace lockstep::serve {
namespace {

using Json = nlohmann::json;

uint64_t unsigned_or_zero(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

std::string string_or_empty(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

}  // namespace

std::optional<uint16_t> listening_port(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || string_or_empty(json, "event") != "listening") return std::nullopt;
  const uint64_t port = unsigned_or_zero(json, "port");
  if (port == 0 || port > UINT16_MAX) return std::nullopt;
  return static_cast<uint16_t>(port);
}

std::string telling_line(const std::vector<std::string>& lines) {
  std::string telling;
  for (const std::string& line : lines) {
    if (line.find("TP2 LOCKSTEP FAILURE") != std::string::npos) return line;
    if (!line.empty() && line.front() != '{') telling = line;
  }
  return telling;
}

std::optional<RankStatus> parse_rank_status(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  RankStatus status;
  status.round = unsigned_or_zero(json, "round");
  const auto encoding = json.find("encoding");
  status.encoding = encoding != json.end() && *encoding == true;
  const auto preparing = json.find("preparing");
  if (preparing != json.end() && preparing->is_array()) {
    for (const Json& number : *preparing) {
      if (number.is_number_unsigned()) status.preparing.push_back(number.get<uint64_t>());
    }
  }
  const auto slots = json.find("slots");
  if (slots == json.end() || !slots->is_array()) return status;
  for (const Json& slot : *slots) {
    if (!slot.is_object()) continue;
    status.slots.push_back({unsigned_or_zero(slot, "sequence"), string_or_empty(slot, "phase"),
                            static_cast<int64_t>(unsigned_or_zero(slot, "tokens"))});
  }
  return status;
}

}  // namespace lockstep::serve
