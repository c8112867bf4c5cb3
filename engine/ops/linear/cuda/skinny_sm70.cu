// Products of up to eight columns, sm_70. A block has 32 rows; its eight warps share K.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/tiles_sm70.cuh"

namespace lockstep::cuda {
namespace {

using namespace sm70;

constexpr int kBatch = 2;  // blocks of weights that are loaded together
constexpr int kThreads = 256;

template <typename Tile, int kFirst, int kEnd>
__device__ __forceinline__ void multiply_chunks(const Tile& tile, const typename Tile::Scale& scale,
                                                const uint4* x, float (&acc)[8]) {
  if constexpr (kFirst < kEnd) {
    uint32_t v[4];
    tile.template chunk<kFirst>(scale, v);
    multiply_eight(acc, v, x[kFirst * 8]);
    multiply_chunks<Tile, kFirst + 1, kEnd>(tile, scale, x, acc);
  }
}

// One block of columns of this block's rows.
template <typename Tile, int kGroup = 0>
__device__ __forceinline__ void multiply(const Tile& tile, const SkinnyParams& p, int block,
                                         int lane, const uint4* x, float (&acc)[8]) {
  if constexpr (Tile::kScaledGroups == 0) {
    multiply_chunks<Tile, 0, Tile::kChunks>(tile, {}, x, acc);
  } else if constexpr (kGroup < Tile::kScaledGroups) {
    constexpr int kEach = Tile::kChunks / Tile::kScaledGroups;
    const typename Tile::Scale scale = Tile::scale(p, blockIdx.x, block, lane, kGroup);
    float part[8] = {};
    multiply_chunks<Tile, kGroup * kEach, (kGroup + 1) * kEach>(tile, scale, x, part);
#pragma unroll
    for (int i = 0; i < 8; ++i) acc[i] = fmaf(part[i], scale.of(i), acc[i]);
    multiply<Tile, kGroup + 1>(tile, p, block, lane, x, acc);
  }
}

__device__ __forceinline__ void block_barrier() {
  if (!mutant(Mutant::linear_missing_barrier)) __syncthreads();
}

// Adds the sums of the eight warps in their order and stores 32 rows of up to eight columns.
template <typename Tile>
__device__ __forceinline__ void finish_tile(const SkinnyParams& p, const float (&acc)[8]) {
  __shared__ float partials[8][8 * kSm70PartialStride];
  const int lane = threadIdx.x % 32;
  float* mine = partials[threadIdx.x / 32];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    mine[accumulator_token(lane, i) * kSm70PartialStride + accumulator_row(lane) + (i & 4) +
         (i & 1)] = acc[i];
  }
  block_barrier();
  const int token = threadIdx.x / 32;
  const int row = blockIdx.x * 32 + lane;
  const bool inside = row < p.n_rows || mutant(Mutant::linear_row_tail);
  if ((token >= p.n_tokens && !mutant(Mutant::linear_token_tail)) || !inside) return;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < 8; ++w) {
    const bool backwards = mutant(Mutant::linear_order_of_one) && p.n_tokens == 1;
    sum += partials[backwards ? 7 - w : w][token * kSm70PartialStride + lane];
  }
  const float factor = mutant(Mutant::linear_factor_lost) ? 1.0f : factors_of(p, 0)[token];
  store_output(p, token, row, sum * (factor * Tile::kFactor) * p.row_scale[row]);
}

// Loads of one batch. Beyond the end the last block again: a load under a condition would be moved
// down to the product under the same condition.
template <typename Tile>
__device__ __forceinline__ void load_batch(const SkinnyParams& p, int first, int n_blocks, int lane,
                                           Tile (&batch)[kBatch]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    batch[i].load(p, blockIdx.x, min(first + 8 * i, n_blocks - 1), lane);
  }
}

template <typename Tile>
__device__ __forceinline__ void multiply_batch(const SkinnyParams& p, int first, int n_blocks,
                                               int lane, const Tile (&batch)[kBatch],
                                               const uint4* x, float (&acc)[8]) {
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (first + 8 * i < n_blocks) {
      multiply(batch[i], p, first + 8 * i, lane, x + i * (8 * Tile::kColumns), acc);
    }
  }
}

// Two batches in turn: one is on its way while the other is multiplied. The loads of a batch share
// a scoreboard, so a ring of single blocks would wait for its newest load each time.
template <typename Tile>
__global__ void __launch_bounds__(kThreads, 2) skinny_sm70(const SkinnyParams p) {
  constexpr int kStride = 8 * kBatch;
  const int lane = threadIdx.x % 32;
  const int slice = threadIdx.x / 32;
  const int n_blocks = p.n_blocks - (mutant(Mutant::linear_last_block) ? 1 : 0);
  Tile even[kBatch];
  Tile odd[kBatch];
  load_batch(p, slice, n_blocks, lane, even);
  float acc[8] = {};
  // Chunks of eight columns are eight tokens wide; this lane multiplies token `lane % 4 + 4 hi`.
  const uint4* x =
      reinterpret_cast<const uint4*>(p.x) + slice * Tile::kColumns + lane % 4 + 4 * (lane / 16);
  for (int first = slice; first < n_blocks; first += 2 * kStride) {
    load_batch(p, first + kStride, n_blocks, lane, odd);
    multiply_batch(p, first, n_blocks, lane, even, x, acc);
    if (!mutant(Mutant::linear_stale_stage)) {
      load_batch(p, first + 2 * kStride, n_blocks, lane, even);
    }
    multiply_batch(p, first + kStride, n_blocks, lane, odd, x + kStride * Tile::kColumns, acc);
    x += 2 * kStride * Tile::kColumns;
  }
  finish_tile<Tile>(p, acc);
}

template <typename Tile>
void launch(const SkinnyParams& p, cudaStream_t stream) {
  arm_mutant();
  skinny_sm70<Tile><<<p.n_tiles, kThreads, 0, stream>>>(p);
  cuda_check_launch("linear skinny_sm70");
}

}  // namespace

void launch_skinny_sm70(Codec codec, const SkinnyParams& p, cudaStream_t stream) {
  switch (codec) {
    case Codec::nvfp4:
      return launch<Nvfp4Tile>(p, stream);
    case Codec::fp8:
      return launch<Fp8Tile<false>>(p, stream);
    case Codec::fp8_block:
      return launch<Fp8Tile<true>>(p, stream);
    case Codec::bf16:
    case Codec::f16:
      return launch<HalfTile>(p, stream);
    case Codec::int4:
      return launch<Int4Tile>(p, stream);
    default:
      no_kernel_for(codec);
  }
}

}  // namespace lockstep::cuda
