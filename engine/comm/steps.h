// Steps that ranks take together at start, over the host's mailbox.
#pragma once

#include <functional>

#include "engine/comm/communicator.h"

namespace lockstep {

// Runs `step` on this rank. When it throws Error on a rank, every rank throws Error (exit code 1)
// with the line of the lowest such rank, so that all go on together.
void in_step(Communicator& host, const std::function<void()>& step);

}  // namespace lockstep
