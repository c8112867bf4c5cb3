// Products of any number of columns, sm_70: the prompt's route. A warp has 32 rows and kGroups
// groups of eight columns and goes through K by itself, block after block: one chain of sums an
// element, so its bits depend on K and codec alone. Codes are decoded once for all of a warp's
// columns; activations come through the caches, where the warps of a block meet them at about the
// same time.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/tiles_sm70.cuh"

namespace lockstep::cuda {
namespace {

using namespace sm70;

constexpr int kThreads = 256;
constexpr int kRowWarps = 4;    // tiles of rows of a block
constexpr int kTokenWarps = 2;  // of kGroups groups of columns

// Sums of a warp: 32 rows x 8 columns a group.
template <int kGroups>
using Sums = float[kGroups][8];

// Where this lane finds its column of each group.
template <int kGroups>
struct Activations {
  const uint4* of_group[kGroups];

  __device__ __forceinline__ Activations(const SkinnyParams& p, int first_group, int lane) {
    const int last = (p.n_tokens - 1) / 8;
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      // Groups that are not there read the last one and store nothing.
      const int group = min(first_group + n, last);
      of_group[n] =
          reinterpret_cast<const uint4*>(p.x + group * p.group_bytes) + lane % 4 + 4 * (lane / 16);
    }
  }
};

template <typename Tile, int kGroups, int kFirst, int kEnd>
__device__ __forceinline__ void multiply_chunks(const Tile& tile, const typename Tile::Scale& scale,
                                                const Activations<kGroups>& x, int chunk0,
                                                Sums<kGroups>& acc) {
  if constexpr (kFirst < kEnd) {
    uint32_t v[4];
    tile.template chunk<kFirst>(scale, v);
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      multiply_eight(acc[n], v, x.of_group[n][(chunk0 + kFirst) * 8]);
    }
    multiply_chunks<Tile, kGroups, kFirst + 1, kEnd>(tile, scale, x, chunk0, acc);
  }
}

// One block of columns.
template <typename Tile, int kGroups, int kPart = 0>
__device__ __forceinline__ void multiply(const SkinnyParams& p, const Tile& tile, int row_tile,
                                         int block, int lane, const Activations<kGroups>& x,
                                         Sums<kGroups>& acc) {
  const int chunk0 = block * Tile::kChunks;
  if constexpr (Tile::kScaledGroups == 0) {
    multiply_chunks<Tile, kGroups, 0, Tile::kChunks>(tile, {}, x, chunk0, acc);
  } else if constexpr (kPart < Tile::kScaledGroups) {
    constexpr int kEach = Tile::kChunks / Tile::kScaledGroups;
    const typename Tile::Scale scale = Tile::scale(p, row_tile, block, lane, kPart);
    Sums<kGroups> part = {};
    multiply_chunks<Tile, kGroups, kPart * kEach, (kPart + 1) * kEach>(tile, scale, x, chunk0,
                                                                       part);
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
#pragma unroll
      for (int i = 0; i < 8; ++i) acc[n][i] = fmaf(part[n][i], scale.of(i), acc[n][i]);
    }
    multiply<Tile, kGroups, kPart + 1>(p, tile, row_tile, block, lane, x, acc);
  }
}

template <typename Tile, int kGroups>
__device__ __forceinline__ void store(const SkinnyParams& p, int row_tile, int first_group,
                                      int lane, const Sums<kGroups>& acc) {
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int in_group = accumulator_token(lane, i);
      const int token = (first_group + n) * 8 + in_group;
      const int row = row_tile * 32 + accumulator_row(lane) + (i & 4) + (i & 1);
      const bool row_inside = row < p.n_rows || mutant(Mutant::tiled_row_tail);
      const bool token_inside = token < p.n_tokens || mutant(Mutant::tiled_token_tail);
      if (!row_inside || !token_inside) continue;
      const int factor_group = mutant(Mutant::tiled_factor_group) ? 0 : first_group + n;
      const float factor = factors_of(p, factor_group)[in_group];
      store_output(p, token, row, acc[n][i] * (factor * Tile::kFactor) * p.row_scale[row]);
    }
  }
}

template <typename Tile, int kGroups>
__global__ void __launch_bounds__(kThreads, 2) tiled_sm70(const SkinnyParams p) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int row_tile = blockIdx.y * kRowWarps + warp % kRowWarps;
  const int first_group = (blockIdx.x * kTokenWarps + warp / kRowWarps) * kGroups;
  if (row_tile >= p.n_tiles || first_group * 8 >= p.n_tokens) return;
  const Activations<kGroups> x(p, mutant(Mutant::tiled_column_place) ? 0 : first_group, lane);
  const int n_blocks = p.n_blocks - (mutant(Mutant::tiled_last_block) ? 1 : 0);
  Sums<kGroups> acc = {};
  // One block is on its way while another is multiplied; beyond the end the last one again.
  Tile even;
  Tile odd;
  even.load(p, row_tile, 0, lane);
  for (int block = 0; block < n_blocks; block += 2) {
    odd.load(p, row_tile, min(block + 1, n_blocks - 1), lane);
    multiply<Tile, kGroups>(p, even, row_tile, block, lane, x, acc);
    if (!mutant(Mutant::tiled_stale_stage)) {
      even.load(p, row_tile, min(block + 2, n_blocks - 1), lane);
    }
    if (block + 1 < n_blocks) multiply<Tile, kGroups>(p, odd, row_tile, block + 1, lane, x, acc);
  }
  store<Tile, kGroups>(p, row_tile, first_group, lane, acc);
}

template <typename Tile, int kGroups>
void launch(const SkinnyParams& p, cudaStream_t stream) {
  arm_mutant();
  constexpr int kTokens = kTokenWarps * kGroups * 8;
  const dim3 grid(static_cast<unsigned>((p.n_tokens + kTokens - 1) / kTokens),
                  static_cast<unsigned>((p.n_tiles + kRowWarps - 1) / kRowWarps));
  tiled_sm70<Tile, kGroups><<<grid, kThreads, 0, stream>>>(p);
  cuda_check_launch("linear tiled_sm70");
}

}  // namespace

// Scaled sums take twice the registers, so half the columns a warp.
void launch_tiled_sm70(Codec codec, const SkinnyParams& p, cudaStream_t stream) {
  switch (codec) {
    case Codec::nvfp4:
      return launch<Nvfp4Tile, 4>(p, stream);
    case Codec::fp8:
      return launch<Fp8Tile<false>, 4>(p, stream);
    case Codec::fp8_block:
      return launch<Fp8Tile<true>, 2>(p, stream);
    case Codec::bf16:
    case Codec::f16:
      return launch<HalfTile, 4>(p, stream);
    case Codec::int4:
      return launch<Int4Tile, 2>(p, stream);
    default:
      no_kernel_for(codec);
  }
}

}  // namespace lockstep::cuda
