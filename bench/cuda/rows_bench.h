#pragma once

#include "bench/cuda/ops_run.h"

namespace lockstep::bench_cuda {

// Norms, element-wise ops, heads and cache, over the widths of the 27B model.
void run_rows(OpsRun& run);
// What a fused op does in one pass where it can, op by op, and the embedding.
void run_pieces(OpsRun& run, int n_tokens);
// Interpolated position embeddings of the vision tower.
void run_position_table(OpsRun& run, int n_patches);
// Draws from the whole vocabulary, a column for each token.
void run_sample(OpsRun& run);
// The vision tower's ops, over patches.
void run_vision(OpsRun& run);

}  // namespace lockstep::bench_cuda
