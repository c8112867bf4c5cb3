// Many short programs on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace lockstep {

// Calls task(0) .. task(n_tasks - 1), each once, on n_workers threads in that order of starts. An
// Error that a task throws is thrown here, the one of the lowest number, after all have ended.
void run_pool(size_t n_tasks, int n_workers, const std::function<void(size_t)>& task);

}  // namespace lockstep
