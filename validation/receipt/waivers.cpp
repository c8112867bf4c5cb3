#include "validation/receipt/waivers.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
namespace chrono = std::chrono;

std::optional<chrono::sys_days> parse_day(const std::string& text) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  int used = 0;
  const bool read = std::sscanf(text.c_str(), "%4d-%2u-%2u%n", &year, &month, &day, &used) == 3;
  const chrono::year_month_day date{chrono::year(year), chrono::month(month), chrono::day(day)};
  if (!read || used != 10 || text.size() != 10 || !date.ok()) return std::nullopt;
  return chrono::sys_days(date);
}

std::string text_member(const Json& json, const char* key, const std::string& where) {
  if (!json.is_object() || !json.contains(key)) return {};
  if (!json[key].is_string()) fail("{}: {} must be a string", where, key);
  return json[key].get<std::string>();
}

Waiver parse_waiver(const Json& json, const std::string& where) {
  Waiver waiver{text_member(json, "op", where),     text_member(json, "check", where),
                text_member(json, "owner", where),  text_member(json, "reason", where),
                text_member(json, "issued", where), text_member(json, "expires", where)};
  if (waiver.op.empty() == waiver.check.empty()) fail("{}: needs op or check, one of them", where);
  if (waiver.owner.empty()) fail("{}: needs an owner", where);
  if (waiver.reason.empty()) fail("{}: needs a reason", where);
  const auto issued = parse_day(waiver.issued);
  const auto expires = parse_day(waiver.expires);
  if (!issued || !expires) fail("{}: issued and expires must be dates like 2026-01-31", where);
  if (*expires - *issued > chrono::days(kWaiverDays)) {
    fail("{}: expires more than {} days after it was issued", where, kWaiverDays);
  }
  return waiver;
}

std::string utc(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, format, &parts);
  return text;
}

const Waiver* find(const std::vector<Waiver>& waivers, std::string Waiver::*field,
                   const std::string& name, const std::string& today) {
  for (const Waiver& waiver : waivers) {
    if (waiver.*field == name && !waiver.expired(today)) return &waiver;
  }
  return nullptr;
}

}  // namespace

std::string Waiver::subject() const {
  return op.empty() ? "check " + check : "op " + op;
}

std::vector<Waiver> parse_waivers(const std::string& text, const std::string& label) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != Json("lockstep-waivers") ||
      !json.contains("waivers") || !json["waivers"].is_array()) {
    fail("{}: is no list of waivers", label);
  }
  const Json version = json.value("format_version", Json());
  if (version != Json(kWaiverVersion)) {
    fail("{}: format version {} is not {}, the one this build reads", label, version.dump(),
         kWaiverVersion);
  }
  std::vector<Waiver> waivers;
  for (const Json& item : json["waivers"]) {
    waivers.push_back(parse_waiver(item, fmt::format("{}: waiver {}", label, waivers.size())));
  }
  return waivers;
}

std::vector<Waiver> read_waivers(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return {};
  return parse_waivers(read_text_file(path), path.string());
}

const Waiver* waiver_for_op(const std::vector<Waiver>& waivers, const std::string& op,
                            const std::string& today) {
  return find(waivers, &Waiver::op, op, today);
}

const Waiver* waiver_for_check(const std::vector<Waiver>& waivers, const std::string& check,
                               const std::string& today) {
  return find(waivers, &Waiver::check, check, today);
}

std::string utc_today() {
  return utc("%Y-%m-%d");
}

std::string utc_now() {
  return utc("%Y-%m-%dT%H:%M:%SZ");
}

}  // namespace lockstep
