// Starts the rank processes of one run and waits for them.
#pragma once

#include <filesystem>

#include "engine/rank/run_flags.h"

namespace lockstep {

// Runs the job file on flags.n_ranks processes that write into out_dir. Returns 0, or the exit code
// of the first rank that failed; what it had to say is on stderr by then. Throws Error (exit 75)
// that names a rank which a signal ended.
int run_ranks(const RunFlags& flags, const std::filesystem::path& jobs,
              const std::filesystem::path& out_dir);

}  // namespace lockstep
