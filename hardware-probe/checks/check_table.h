// The 25 checks: what each is called, where it applies and in which modes it runs.
#pragma once

#include <vector>

#include "hardware-probe/checks/context.h"

namespace lockstep::probe {

enum class Scope { host, gpu, pair, group };  // group: once for all cards, with two or more

struct CheckEntry {
  const char* id;
  const char* name;
  Scope scope;
  Mode first_mode;  // and in every longer mode
  CheckFunction function;
  bool (*applies)(const Context& context, int index);
};

const std::vector<CheckEntry>& check_table();

// All findings, in the table's order. A check that should have run and has no result gives a skip.
std::vector<Finding> run_checks(const Context& context);

}  // namespace lockstep::probe
