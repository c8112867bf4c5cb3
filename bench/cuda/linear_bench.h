#pragma once

#include "bench/cuda/ops_run.h"

namespace lockstep::bench_cuda {

void run_linear(OpsRun& run);

}  // namespace lockstep::bench_cuda
