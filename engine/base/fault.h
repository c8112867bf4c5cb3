// Planted faults. Points are named here and nowhere else; they are compiled in only with
// LOCKSTEP_FAULTS (the program lockstep-rank-faulty). In release programs every query is a constant
// false and leaves no trace.
//
// A fault is chosen by "NAME" or "NAME@layer=L,rank=R,round=N": it fires where every given value
// matches. Each point knows some of these selectors; the others are refused. Faults act in the rank
// (weights in memory, ids, positions, states, partial sums), never on what a rank reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct FaultSelectors {
  bool layer = false;
  bool rank = false;
  bool round = false;
};

struct FaultPoint {
  std::string_view name;
  std::string_view effect;   // what it does, one line for --help and the catalogue
  FaultSelectors selectors;  // what fault_fires is asked with
};

// Every fault point, sorted by name.
const std::vector<FaultPoint>& fault_points();

// "layer, rank"; empty for none.
std::string selector_names(const FaultSelectors& selectors);

struct FaultSite {
  int layer = -1;
  int rank = -1;
  int round = -1;
};

#if defined(LOCKSTEP_FAULTS)

// Activates the fault of `spec`. Throws Error (usage) for an unknown name, or a selector that the
// point does not know. Empty: none.
void select_fault(const std::string& spec);
// `site` gives exactly what the point declares.
bool fault_fires(std::string_view name, const FaultSite& site = {});
// Whether one is chosen, be it that it never fires.
bool fault_selected();
// How often any fault fired since select_fault: a fault that never fired proves nothing.
long fault_firings();

#else

constexpr bool fault_fires(std::string_view, const FaultSite& = {}) {
  return false;
}
constexpr bool fault_selected() {
  return false;
}

#endif

}  // namespace lockstep
