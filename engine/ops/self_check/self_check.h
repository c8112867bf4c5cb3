// Start-up self-check: small integer-exact problems through every CPU kernel of the chosen
// instruction set. Every partial sum is an integer below 2^24, so any order of a correct kernel
// gives the same bits and the expected result is computed in integers. Throws Error that names the
// kernel on a mismatch.
#pragma once

#include "engine/base/thread_pool.h"

namespace lockstep {

void run_ops_self_check(ThreadPool& pool);

}  // namespace lockstep
