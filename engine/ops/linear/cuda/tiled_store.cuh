// The end of the tiled kernels: finished sums of a block go out by way of shared memory, with the
// lanes of a warp along the rows.
#pragma once

#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/linear/cuda/skinny.cuh"
#include "engine/ops/linear/cuda/tiled_shared.h"

namespace lockstep::cuda {

// `out` holds [n_columns][tiled_out_stride(kRows)] sums, written by all threads before this.
template <typename Tile, int kThreads, int kRows = kTiledRows>
__device__ __forceinline__ void store_tile(const SkinnyParams& p, const float* out, int first_row,
                                           int first_token, int n_columns) {
  if (!mutant(Mutant::tiled_missing_barrier)) __syncthreads();
  const int lane = threadIdx.x % 32;
  for (int column = threadIdx.x / 32; column < n_columns; column += kThreads / 32) {
    const int token = first_token + column;
    if (token >= p.n_tokens && !mutant(Mutant::tiled_token_tail)) return;
    const int factor_group = mutant(Mutant::tiled_factor_group) ? 0 : token / 8;
    const float factor = factors_of(p, factor_group)[token % 8] * Tile::kFactor;
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) {
      const int row = first_row + i * 32 + lane;
      if (row >= p.n_rows && !mutant(Mutant::tiled_row_tail)) continue;
      store_output(
          p, token, row,
          out[column * tiled_out_stride(kRows) + i * 32 + lane] * factor * p.row_scale[row]);
    }
  }
}

}  // namespace lockstep::cuda
