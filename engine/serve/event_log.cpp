#include "engine/serve/event_log.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string time_text() {
  using std::chrono::system_clock;
  const auto now = std::chrono::floor<std::chrono::milliseconds>(system_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(system_clock::to_time_t(seconds)),
                     (now - seconds).count());
}

void write_line(const Json& json) {
  // One write a line: lines of two threads or processes do not mix.
  const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void log_event(std::string_view event, std::initializer_list<LogField> fields) {
  Json json = {{"time", time_text()}, {"event", event}};
  for (const auto& [name, value] : fields) {
    std::visit([&, key = std::string(name)](const auto& held) { json[key] = held; }, value);
  }
  write_line(json);
}

void log_rank_line(int rank, const std::string& line) {
  const Json own = Json::parse(line, nullptr, false);
  Json json = {{"time", time_text()}};
  if (own.is_object()) {
    json["event"] = own.contains("event") ? own["event"] : Json("rank");
    json["rank"] = rank;
    for (const auto& [name, value] : own.items()) {
      if (name != "time") json[name] = value;
    }
  } else {
    json.update(Json{{"event", "rank_output"}, {"rank", rank}, {"text", line}});
  }
  write_line(json);
}

}  // namespace lockstep::serve
