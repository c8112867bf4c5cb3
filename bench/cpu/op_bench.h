// Single ops against the roofs: decode (1 to 4 tokens) as a share of the bandwidth at which this
// machine reads as many bytes as the op does, prefill (64 and 512 tokens) as a share of the FMA
// peak.
#pragma once

#include "bench/cpu/results.h"
#include "bench/cpu/roof_table.h"
#include "bench/cpu/settings.h"
#include "engine/model/config.h"

namespace lockstep {

// One run of every op with `pool`. `golden` gives the small shapes; those of a 27B layer are fixed.
void run_op_bench(const CpuBenchSettings& settings, const ModelConfig& golden, ThreadPool& pool,
                  RoofTable& roofs, Results& results);

}  // namespace lockstep
