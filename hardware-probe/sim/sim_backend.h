// Driver calls and memory contents of a synthetic machine, on a clock of its own.
#pragma once

#include <memory>

#include "hardware-probe/backend/backend.h"
#include "hardware-probe/sim/machine.h"

namespace lockstep::probe::sim {

std::unique_ptr<Backend> open_sim(Machine machine);

}  // namespace lockstep::probe::sim
