#pragma once

#include "bench/cuda/ops_run.h"

namespace lockstep::bench_cuda {

void run_linear(OpsRun& run);

// Products of a layer one after the other, as decode rounds launch them.
void run_linear_chain(OpsRun& run);

}  // namespace lockstep::bench_cuda
