#pragma once

#include "bench/cuda/ops_run.h"

namespace lockstep::bench_cuda {

void run_attention(OpsRun& run);
void run_prefill_attention(OpsRun& run);

}  // namespace lockstep::bench_cuda
