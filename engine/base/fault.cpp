#include "engine/base/fault.h"

#if defined(LOCKSTEP_FAULTS)

#include <algorithm>
#include <charconv>

#include "engine/base/error.h"

namespace lockstep {
namespace {

struct Selection {
  std::string name;
  FaultSite site;
  long firings = 0;
};

Selection& selection() {
  static Selection chosen;
  return chosen;
}

int parse_value(std::string_view text, const std::string& spec) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    fail_with(ExitCode::usage, "--fault {}: '{}' is not a number", spec, text);
  }
  return value;
}

void parse_condition(std::string_view text, const std::string& spec, FaultSite& site) {
  const size_t equals = text.find('=');
  const std::string_view key = text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : text.substr(equals + 1);
  if (key == "layer") {
    site.layer = parse_value(value, spec);
  } else if (key == "rank") {
    site.rank = parse_value(value, spec);
  } else if (key == "round") {
    site.round = parse_value(value, spec);
  } else {
    fail_with(ExitCode::usage, "--fault {}: '{}' is not layer=, rank= or round=", spec, text);
  }
}

bool matches(int wanted, int actual) {
  return wanted < 0 || wanted == actual;
}

}  // namespace

void select_fault(const std::string& spec) {
  selection() = {};
  if (spec.empty()) return;
  const size_t at = spec.find('@');
  const std::string name = spec.substr(0, at);
  const auto& points = fault_points();
  if (std::none_of(points.begin(), points.end(), [&](const auto& p) { return p.name == name; })) {
    fail_with(ExitCode::usage, "--fault {}: unknown fault; 'lockstep fault --list' names them",
              name);
  }
  selection().name = name;
  std::string_view rest = at == std::string::npos ? "" : std::string_view(spec).substr(at + 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    parse_condition(rest.substr(0, comma), spec, selection().site);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
}

bool fault_fires(std::string_view name, const FaultSite& site) {
  Selection& chosen = selection();
  const bool fires = chosen.name == name && matches(chosen.site.layer, site.layer) &&
                     matches(chosen.site.rank, site.rank) && matches(chosen.site.round, site.round);
  if (fires) ++chosen.firings;
  return fires;
}

bool fault_selected() {
  return !selection().name.empty();
}

long fault_firings() {
  return selection().firings;
}

}  // namespace lockstep

#endif
