// The real machine behind the same interface, or the reason why this build has none.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hardware-probe/collect/steps.h"

namespace lockstep::probe {

// Runs every step in a child process of this program with a deadline; an interruption ends the
// child.
std::unique_ptr<StepExecutor> child_executor(std::function<bool()> interrupted);

// What a child runs: one step on the real machine; partial results and the result go to stdout.
int run_child_step(const std::string& specification);

}  // namespace lockstep::probe
