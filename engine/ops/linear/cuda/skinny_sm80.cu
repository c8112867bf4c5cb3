// Products of up to eight columns, sm_80 and up. A block stays on its multiprocessor: it reads the
// activations once into shared memory, then its two groups of eight warps stream through tiles of
// 16 rows. A warp keeps kStages blocks of weights in flight in registers across the ends of tiles,
// so that the memory never waits for a sum.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/skinny_sm80.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kStages = 4;
constexpr int kGroupThreads = 256;
constexpr int kThreads = kSm80Groups * kGroupThreads;

// Which block of columns of which tile a warp takes next.
struct Cursor {
  int tile;
  int block;  // 0, 1, ... of this warp: block 8 * block + slice of the tile

  __device__ __forceinline__ bool step(int blocks, int stride) {  // true at the end of a tile
    if (++block < blocks) return false;
    block = 0;
    tile += stride;
    return true;
  }
};

__device__ __forceinline__ void group_barrier(int group) {
  if (mutant(Mutant::linear_missing_barrier)) return;
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroupThreads) : "memory");
}

__device__ __forceinline__ void stage_activations(const SkinnyParams& p, unsigned char* shared,
                                                  int row_bytes) {
  const int n_vectors = (row_bytes - kSm80RowPadding) / 16;
  for (int token = 0; token < p.n_tokens; ++token) {
    auto* to = reinterpret_cast<uint4*>(shared + token * row_bytes);
    const uint4* from = p.x + token * n_vectors;
    for (int i = threadIdx.x; i < n_vectors; i += kThreads) to[i] = from[i];
  }
}

// Adds the sums of the eight warps in their order and stores the tile.
template <typename Tile>
__device__ __forceinline__ void finish_tile(const SkinnyParams& p, float* partials, int tile,
                                            int slice, int lane, int parity, int group,
                                            const float (&acc)[4]) {
  float* mine = partials + slice * kSm80PartialFloats;
  const int g = lane / 4;
  const int token0 = 2 * (lane % 4);
  mine[token0 * kSm80PartialStride + g] = acc[0];
  mine[(token0 + 1) * kSm80PartialStride + g] = acc[1];
  mine[token0 * kSm80PartialStride + g + 8] = acc[2];
  mine[(token0 + 1) * kSm80PartialStride + g + 8] = acc[3];
  group_barrier(group);
  // Four of the warps have 128 sums to make; the other four take the next tile.
  if (slice / 4 != parity) return;
  const int index = (slice % 4) * 32 + lane;
  const int token = index / 16;
  const int row = tile * 16 + index % 16;
  const bool inside = row < p.n_rows || mutant(Mutant::linear_row_tail);
  if ((token >= p.n_tokens && !mutant(Mutant::linear_token_tail)) || !inside) return;
  const float* from = partials + token * kSm80PartialStride + index % 16;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < 8; ++w) {
    const bool backwards = mutant(Mutant::linear_order_of_one) && p.n_tokens == 1;
    sum += from[(backwards ? 7 - w : w) * kSm80PartialFloats];
  }
  const float factor = mutant(Mutant::linear_factor_lost) ? 1.0f : p.factors[token];
  store_output(p, token, row, sum * (factor * Tile::kFactor) * p.row_scale[row]);
}

template <typename Tile>
__global__ void __launch_bounds__(kThreads, 1) skinny_sm80(const SkinnyParams p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int lane = threadIdx.x % 32;
  const int slice = threadIdx.x / 32 % 8;
  const int group = threadIdx.x / kGroupThreads;
  const int row_bytes = p.n_blocks * Tile::kColumns * 2 + kSm80RowPadding;
  auto* partials = reinterpret_cast<float*>(shared + p.n_tokens * row_bytes) +
                   group * 2 * 8 * kSm80PartialFloats;
  const int n_blocks = p.n_blocks - (mutant(Mutant::linear_last_block) ? 1 : 0);
  const int my_blocks = (n_blocks - slice + 7) / 8;
  const int stride = gridDim.x * kSm80Groups;
  Cursor at{static_cast<int>(blockIdx.x) * kSm80Groups + group, 0};
  Cursor ahead = at;

  Tile ring[kStages];
  const auto refill = [&](Tile& stage) {
    if (my_blocks == 0 || ahead.tile >= p.n_tiles) return;
    stage.load(p, ahead.tile, 8 * ahead.block + slice, lane);
    ahead.step(my_blocks, stride);
  };
#pragma unroll
  for (int s = 0; s < kStages; ++s) refill(ring[s]);
  stage_activations(p, shared, row_bytes);
  __syncthreads();

  // Columns that are not there read the last one: a product never mixes columns.
  const unsigned char* x = shared + min(lane / 4, p.n_tokens - 1) * row_bytes + (lane % 4) * 16 +
                           slice * (Tile::kColumns * 2);
  float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  int parity = 0;
  while (at.tile < p.n_tiles) {
#pragma unroll
    for (int s = 0; s < kStages; ++s) {
      if (at.tile < p.n_tiles) {
        if (my_blocks != 0) {
          ring[s].multiply(x + at.block * (8 * Tile::kColumns * 2), acc);
          if (!mutant(Mutant::linear_stale_stage) || s != 1) refill(ring[s]);
        }
        const int tile = at.tile;
        if (at.step(my_blocks, stride)) {
          finish_tile<Tile>(p, partials + parity * 8 * kSm80PartialFloats, tile, slice, lane,
                            parity, group, acc);
          if (!mutant(Mutant::linear_stale_buffer)) parity ^= 1;
          if (!mutant(Mutant::linear_accumulator_kept)) {
            acc[0] = acc[1] = acc[2] = acc[3] = 0.0f;
          }
        }
      }
    }
  }
}

template <typename Tile>
void launch(const SkinnyParams& p, int n_multiprocessors, cudaStream_t stream) {
  arm_mutant();
  const int shared_bytes = static_cast<int>(
      p.n_tokens * (p.n_blocks * Tile::kColumns * 2 + kSm80RowPadding) + kSm80PartialBytes);
  cuda_check(cudaFuncSetAttribute(skinny_sm80<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  shared_bytes),
             "linear: dynamic shared memory");
  const int blocks = min(n_multiprocessors, (p.n_tiles + kSm80Groups - 1) / kSm80Groups);
  skinny_sm80<Tile><<<blocks, kThreads, shared_bytes, stream>>>(p);
  cuda_check_launch("linear skinny_sm80");
}

}  // namespace

void launch_skinny_sm80(Codec codec, int groups_in_block, const SkinnyParams& p,
                        int n_multiprocessors, cudaStream_t stream) {
  switch (codec) {
    case Codec::nvfp4:
      return launch<Nvfp4Tile>(p, n_multiprocessors, stream);
    case Codec::fp8:
      return launch<Fp8Tile>(p, n_multiprocessors, stream);
    case Codec::fp8_block:
      return launch<Fp8BlockTile>(p, n_multiprocessors, stream);
    case Codec::bf16:
      return launch<HalfTile<true>>(p, n_multiprocessors, stream);
    case Codec::f16:
      return launch<HalfTile<false>>(p, n_multiprocessors, stream);
    case Codec::int4:
      if (groups_in_block == 4) return launch<Int4Tile<4>>(p, n_multiprocessors, stream);
      if (groups_in_block == 2) return launch<Int4Tile<2>>(p, n_multiprocessors, stream);
      return launch<Int4Tile<1>>(p, n_multiprocessors, stream);
    default:
      no_kernel_for(codec);
  }
}

}  // namespace lockstep::cuda
