// The P2P truth ladder: each rung one way, always verified by the owner of the memory.
#pragma once

#include <functional>

#include "hardware-probe/backend/backend.h"
#include "hardware-probe/collect/budget.h"

namespace lockstep::probe {

// Fills pair.rungs; `publish` is called before each rung with the rung marked as hanging, so that
// a run that never returns leaves the truth behind.
void climb_ladder(Backend& backend, PairObservations& pair, uint64_t seed,
                  const std::function<void()>& publish);
void time_peers(Backend& backend, PairObservations& pair, const Budget& budget);
Collective try_collectives(Backend& backend, uint64_t seed);

}  // namespace lockstep::probe
