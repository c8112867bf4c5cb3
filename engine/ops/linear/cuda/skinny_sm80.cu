// Products of up to eight columns, sm_80 and up. A block stays on its multiprocessor: it reads the
// activations once into shared memory, then its two groups of eight warps stream through tiles of
// 16 rows. A warp keeps kStages - 1 blocks of weights in flight, across the ends of tiles, so that
// the memory never waits for a sum.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/skinny_sm80.cuh"

namespace lockstep::cuda {
namespace {

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

// One group of copies, before those of the weights.
__device__ __forceinline__ void copy_activations(const SkinnyParams& p, unsigned char* to,
                                                 int row_bytes) {
  const int n_vectors = (row_bytes - kSm80RowPadding) / 16;
  for (int token = 0; token < p.n_tokens; ++token) {
    for (int i = threadIdx.x; i < n_vectors; i += kThreads) {
      copy_async_16(to + token * row_bytes + i * 16, p.x + token * n_vectors + i);
    }
  }
  copy_async_commit();
}

// The output that a thread of a group adds up for every second tile: four of the eight warps have
// the 128 sums of a tile to make, the other four go on with the next tile.
struct Output {
  int token;
  int row;  // in the tile
  bool inside;
  float factor;
  float row_scale;  // of the next tile that this thread adds up, loaded long before

  __device__ __forceinline__ Output(const SkinnyParams& p, int slice, int lane) {
    const int index = slice % 4 * 32 + lane;
    token = index / 16;
    row = index % 16;
    inside = token < p.n_tokens || mutant(Mutant::linear_token_tail);
    factor = token < p.n_tokens && !mutant(Mutant::linear_factor_lost) ? p.factors[token] : 1.0f;
  }
  __device__ __forceinline__ void load_scale(const SkinnyParams& p, int tile) {
    if (tile < p.n_tiles) row_scale = p.row_scale[tile * 16 + row];
  }
};

// Adds the sums of the eight warps in their order and stores the tile.
template <typename Tile>
__device__ __forceinline__ void finish_tile(const SkinnyParams& p, float* partials, int tile,
                                            int slice, int lane, int parity, int group,
                                            const Output& output, const float (&acc)[4]) {
  float* mine = partials + slice * kSm80PartialFloats;
  const int g = lane / 4;
  const int token0 = 2 * (lane % 4);
  mine[token0 * kSm80PartialStride + g] = acc[0];
  mine[(token0 + 1) * kSm80PartialStride + g] = acc[1];
  mine[token0 * kSm80PartialStride + g + 8] = acc[2];
  mine[(token0 + 1) * kSm80PartialStride + g + 8] = acc[3];
  group_barrier(group);
  const int row = tile * 16 + output.row;
  const bool row_inside = row < p.n_rows || mutant(Mutant::linear_row_tail);
  if (slice / 4 != parity || !output.inside || !row_inside) return;
  const float* from = partials + output.token * kSm80PartialStride + output.row;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < 8; ++w) {
    const bool backwards = mutant(Mutant::linear_order_of_one) && p.n_tokens == 1;
    sum += from[(backwards ? 7 - w : w) * kSm80PartialFloats];
  }
  store_output(p, output.token, row, sum * (output.factor * Tile::kFactor) * output.row_scale);
}

template <typename Tile, int kStages>
__global__ void __launch_bounds__(kThreads, 1) skinny_sm80(const SkinnyParams p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int slice = warp % 8;
  const int group = warp / 8;
  const int row_bytes = p.n_blocks * Tile::kColumns * 2 + kSm80RowPadding;
  auto* partials = reinterpret_cast<float*>(shared) + group * 2 * 8 * kSm80PartialFloats;
  unsigned char* ring = shared + kSm80PartialBytes + warp * kStages * Tile::kStageBytes;
  unsigned char* activations =
      shared + kSm80PartialBytes + kThreads / 32 * kStages * Tile::kStageBytes;
  const int n_blocks = p.n_blocks - (mutant(Mutant::linear_last_block) ? 1 : 0);
  const int my_blocks = (n_blocks - slice + 7) / 8;
  const int stride = gridDim.x * kSm80Groups;
  Cursor at{static_cast<int>(blockIdx.x) * kSm80Groups + group, 0};
  Cursor ahead = at;

  // A group of copies for every stage, empty beyond the end: waiting counts groups.
  const auto refill = [&](int stage) {
    if (my_blocks != 0 && ahead.tile < p.n_tiles && !mutant(Mutant::ablate_loads)) {
      Tile::copy(p, ahead.tile, 8 * ahead.block + slice, lane, ring + stage * Tile::kStageBytes);
      ahead.step(my_blocks, stride);
    }
    copy_async_commit();
  };
  copy_activations(p, activations, row_bytes);
  for (int s = 0; s < kStages - 1; ++s) refill(s);
  Output output(p, slice, lane);
  output.load_scale(p, slice < 4 ? at.tile : at.tile + stride);
  copy_async_wait<kStages - 1>();
  __syncthreads();

  // Columns that are not there read the last one: a product never mixes columns.
  const unsigned char* x = activations + min(lane / 4, p.n_tokens - 1) * row_bytes +
                           (lane % 4) * 16 + slice * (Tile::kColumns * 2);
  float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  int parity = 0;
  int stage = 0;
  while (at.tile < p.n_tiles) {
    if (my_blocks != 0) {
      copy_async_wait<kStages - 2>();
      Tile tile;
      tile.read(ring + stage * Tile::kStageBytes, lane);
      // The stage before this one was read in the last pass.
      refill(mutant(Mutant::linear_stale_stage) ? stage : (stage == 0 ? kStages - 1 : stage - 1));
      if (!mutant(Mutant::ablate_math)) {
        tile.multiply(x + at.block * (8 * Tile::kColumns * 2), acc);
      }
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
    const int tile_index = at.tile;
    if (at.step(my_blocks, stride)) {
      const int turn = mutant(Mutant::linear_stale_buffer) ? 0 : parity;
      finish_tile<Tile>(p, partials + turn * 8 * kSm80PartialFloats, tile_index, slice, lane,
                        parity, group, output, acc);
      if (slice / 4 == parity) output.load_scale(p, tile_index + 2 * stride);
      parity ^= 1;
      if (!mutant(Mutant::linear_accumulator_kept)) acc[0] = acc[1] = acc[2] = acc[3] = 0.0f;
    }
  }
}

template <typename Tile, int kStages>
int shared_bytes_of(const SkinnyParams& p) {
  return static_cast<int>(
      skinny_sm80_bytes(p.n_blocks * Tile::kColumns, p.n_tokens, kStages, Tile::kStageBytes));
}

template <typename Tile, int kStages>
void launch_stages(const SkinnyParams& p, int n_multiprocessors, cudaStream_t stream) {
  const int shared_bytes = shared_bytes_of<Tile, kStages>(p);
  cuda_check(cudaFuncSetAttribute(skinny_sm80<Tile, kStages>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
             "linear: dynamic shared memory");
  const int blocks = min(n_multiprocessors, (p.n_tiles + kSm80Groups - 1) / kSm80Groups);
  skinny_sm80<Tile, kStages><<<blocks, kThreads, shared_bytes, stream>>>(p);
  cuda_check_launch("linear skinny_sm80");
}

template <typename Tile>
void launch(const SkinnyParams& p, int n_multiprocessors, cudaStream_t stream) {
  arm_mutant();
  if (shared_bytes_of<Tile, kSm80Stages>(p) <= p.block_shared_bytes) {
    launch_stages<Tile, kSm80Stages>(p, n_multiprocessors, stream);
  } else {
    launch_stages<Tile, sm80_few_stages(Tile::kStageBytes)>(p, n_multiprocessors, stream);
  }
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
