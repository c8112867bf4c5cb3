#pragma once

#include "bench/cuda/ops_run.h"

namespace lockstep::bench_cuda {

// Up to eight columns run as decode rounds, more as prefill.
void run_gdn(OpsRun& run);

}  // namespace lockstep::bench_cuda
