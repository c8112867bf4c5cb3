#include "engine/base/fault.h"

#if defined(LOCKSTEP_FAULTS)

#include <algorithm>
#include <charconv>

#include "engine/base/error.h"

namespace lockstep {
namespace {

struct Selection {
  std::string name;
  FaultSelectors known;
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

// The place for the value of `key`; null where the point does not know it.
int* place_of(std::string_view key, Selection& chosen) {
  if (key == "layer" && chosen.known.layer) return &chosen.site.layer;
  if (key == "rank" && chosen.known.rank) return &chosen.site.rank;
  if (key == "round" && chosen.known.round) return &chosen.site.round;
  return nullptr;
}

void parse_condition(std::string_view text, const std::string& spec, Selection& chosen) {
  const size_t equals = text.find('=');
  const std::string_view key = text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : text.substr(equals + 1);
  int* place = place_of(key, chosen);
  if (place == nullptr) {
    const std::string known = selector_names(chosen.known);
    fail_with(ExitCode::usage, "--fault {}: {} has no selector '{}', {}", spec, chosen.name, key,
              known.empty() ? "and no other: leave out what follows @" : "only " + known);
  }
  *place = parse_value(value, spec);
}

bool gives_what_is_declared(const FaultSelectors& declared, const FaultSite& site) {
  return declared.layer == (site.layer >= 0) && declared.rank == (site.rank >= 0) &&
         declared.round == (site.round >= 0);
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
  const auto point =
      std::find_if(points.begin(), points.end(), [&](const auto& p) { return p.name == name; });
  if (point == points.end()) {
    fail_with(ExitCode::usage, "--fault {}: unknown fault; 'lockstep fault --list' names them",
              name);
  }
  selection().name = name;
  selection().known = point->selectors;
  std::string_view rest = at == std::string::npos ? "" : std::string_view(spec).substr(at + 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    parse_condition(rest.substr(0, comma), spec, selection());
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
}

bool fault_fires(std::string_view name, const FaultSite& site) {
  Selection& chosen = selection();
  if (chosen.name != name) return false;
  LOCKSTEP_CHECK(gives_what_is_declared(chosen.known, site));
  const bool fires = matches(chosen.site.layer, site.layer) &&
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
