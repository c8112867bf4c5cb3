// Recurrent states and KV rows of a slot as taps "state/layers.N....".
#pragma once

#include "engine/rank/backend.h"
#include "engine/rank/slot.h"

namespace lockstep {

// Records what the slot's taps ask for, after the whole prompt.
void record_states(const Model& model, Backend& backend, const Slot& slot);

}  // namespace lockstep
