// The catalogue of faults of the synthetic machine: each changes its physics or its driver's
// answers on the second card (the only one of CARD*1) or on the link.
#pragma once

#include <string>
#include <vector>

#include "hardware-probe/sim/machine.h"

namespace lockstep::probe::sim {

struct Fault {
  const char* name;
  const char* check;  // the check that must find it
  Mode first_mode;    // the shortest mode that promises to find it
  const char* description;
  // Empty when it applies to this machine, else why not.
  std::string (*obstacle)(const Machine& machine);
  void (*apply)(Machine& machine);
};

const std::vector<Fault>& faults();

// "CARD[*1][+CARD][,FAULT...]"; throws Error (usage) for unknown names and faults that do not
// apply.
Machine machine_from_spec(const std::string& spec, const CardDatabase& cards);

}  // namespace lockstep::probe::sim
