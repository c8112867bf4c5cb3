// Products of up to eight columns, sm_80 and up. A block stays on its multiprocessor: it reads the
// activations once into shared memory, then its groups of four warps stream through tiles of 16
// rows. A warp keeps kStages - 1 blocks of weights in flight, across the ends of tiles, so that the
// memory never waits for a sum. The next kernel of the stream may start beside this one and fill
// its own rings.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/early_launch.cuh"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/tiles_sm80.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kSplit = kSm80SplitWarps;
constexpr int kGroupThreads = 32 * kSplit;
constexpr int kMaxThreads = 1024;
constexpr int kManyTiles = 7;  // a multiprocessor

__device__ __forceinline__ void group_barrier(int group) {
  if (mutant(Mutant::linear_missing_barrier)) return;
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroupThreads) : "memory");
}

// Rows of prepared activations to shared memory; complete after a barrier of the block.
__device__ __forceinline__ void load_activations(const SkinnyParams& p, unsigned char* to,
                                                 int row_bytes) {
  const int n_vectors = (row_bytes - kSm80RowPadding) / 16;
  for (int token = 0; token < p.n_tokens; ++token) {
    for (int i = threadIdx.x; i < n_vectors; i += blockDim.x) {
      copy_async_16(to + token * row_bytes + i * 16, p.x + (token * n_vectors + i) * 16);
    }
  }
}

// The output of each tile that a thread of a group adds up.
struct Output {
  int token;
  int row;  // in the tile
  bool inside;
  float factor;
  float row_scale;  // of the next tile, loaded long before

  __device__ __forceinline__ Output(const SkinnyParams& p, int slice, int lane) {
    const int index = slice * 32 + lane;
    token = index / 16;
    row = index % 16;
    inside = token < p.n_tokens || mutant(Mutant::linear_token_tail);
    const bool scaled = token < p.n_tokens && !mutant(Mutant::linear_factor_lost);
    factor = scaled ? factors_of(p, 0)[token] : 1.0f;
  }
  __device__ __forceinline__ void load_scale(const SkinnyParams& p, int tile) {
    if (inside && tile < p.n_tiles) row_scale = p.row_scale[tile * 16 + row];
  }
};

// Sums of rows g and g + 8 with two columns of activations. Two chains, added at the end of a tile:
// the second product of a chunk does not wait for the first.
using Sums = float[2][4];

template <typename Tile, int kFirst, int kEnd>
__device__ __forceinline__ void multiply_chunks(const Tile& tile, uint32_t x, Sums& acc) {
  if constexpr (kFirst < kEnd) {
    uint32_t g[4], h[4];
    tile.template chunk<kFirst>(g, h);
    const uint4 v = chunk_of(x, kFirst);
    multiply_pairs<Tile::kBf16, 0>(acc[0], g, h, v.x, v.y);
    multiply_pairs<Tile::kBf16, 2>(acc[1], g, h, v.z, v.w);
    multiply_chunks<Tile, kFirst + 1, kEnd>(tile, x, acc);
  }
}

// One block of columns.
template <typename Tile, int kGroup = 0>
__device__ __forceinline__ void multiply(const Tile& tile, uint32_t x, Sums& acc) {
  if constexpr (Tile::kScaledGroups == 0) {
    multiply_chunks<Tile, 0, Tile::kChunks>(tile, x, acc);
  } else if constexpr (kGroup < Tile::kScaledGroups) {
    constexpr int kEach = Tile::kChunks / Tile::kScaledGroups;
    Sums part = {};
    multiply_chunks<Tile, kGroup * kEach, (kGroup + 1) * kEach>(tile, x, part);
#pragma unroll
    for (int chain = 0; chain < 2; ++chain) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        acc[chain][i] = fmaf(part[chain][i], tile.group_scale(i / 2, kGroup), acc[chain][i]);
      }
    }
    multiply<Tile, kGroup + 1>(tile, x, acc);
  }
}

// Adds the sums of a group's warps in their order and stores the tile.
template <typename Tile>
__device__ __forceinline__ void finish_tile(const SkinnyParams& p, float* partials, int tile,
                                            int slice, int lane, int group, const Output& output,
                                            const Sums& acc) {
  const int warp_floats = sm80_partial_floats(p.n_tokens);
  const int g = lane / 4;
  const int token0 = 2 * (lane % 4);
  if (token0 < p.n_tokens || mutant(Mutant::linear_token_tail)) {
    float* mine = partials + slice * warp_floats + token0 * kSm80PartialStride + g;
    mine[0] = acc[0][0] + acc[1][0];
    mine[kSm80PartialStride] = acc[0][1] + acc[1][1];
    mine[8] = acc[0][2] + acc[1][2];
    mine[kSm80PartialStride + 8] = acc[0][3] + acc[1][3];
  }
  group_barrier(group);
  const int row = tile * 16 + output.row;
  const bool row_inside = row < p.n_rows || mutant(Mutant::linear_row_tail);
  if (!output.inside || !row_inside) return;
  const float* from = partials + output.token * kSm80PartialStride + output.row;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kSplit; ++w) {
    const bool backwards = mutant(Mutant::linear_order_of_one) && p.n_tokens == 1;
    sum += from[(backwards ? kSplit - 1 - w : w) * warp_floats];
  }
  store_output(p, output.token, row, sum * (output.factor * Tile::kFactor) * output.row_scale);
}

// What a warp copies ahead: a ring of stages over the blocks of its tiles, in the order of use.
template <typename Tile, int kStages>
struct Ring {
  Source source;
  Cursor ahead;
  int blocks;  // of this warp in a tile
  int slice;
  int tile_stride;  // to the next tile of the group
  int record_jump;  // from the last block of a tile to the first of the next
  uint32_t begin;
  uint32_t current;
  uint32_t last;  // read in the pass before: may be filled again

  __device__ __forceinline__ Ring(const SkinnyParams& p, int lane, int warp_slice, int n_blocks,
                                  int first_tile, int stride, uint32_t at)
      : source(p, lane),
        blocks((n_blocks - warp_slice + kSplit - 1) / kSplit),
        slice(warp_slice),
        tile_stride(stride),
        begin(at),
        current(at),
        last(at + (kStages - 1) * Tile::kStageBytes) {
    ahead = {blocks == 0 ? p.n_tiles : first_tile, slice, first_tile * p.n_blocks + slice, blocks};
    record_jump = stride * p.n_blocks - kSplit * (blocks - 1);
  }
  // One group of copies, empty beyond the end: waiting counts groups.
  __device__ __forceinline__ void fill(const SkinnyParams& p, int lane, uint32_t stage) {
    if (ahead.tile < p.n_tiles && !mutant(Mutant::ablate_loads)) {
      Tile::copy(p, source, ahead, lane, stage);
      const bool end = --ahead.left == 0;
      ahead.record += end ? record_jump : kSplit;
      ahead.block = end ? slice : ahead.block + kSplit;
      ahead.tile += end ? tile_stride : 0;
      if (end) ahead.left = blocks;
    }
    copy_async_commit();
  }
  __device__ __forceinline__ void advance() {
    last = current;
    current += Tile::kStageBytes;
    if (current == begin + kStages * Tile::kStageBytes) current = begin;
  }
};

// blockDim.x / kGroupThreads groups of each block take tiles in turn.
template <typename Tile, int kStages>
__global__ void __launch_bounds__(kMaxThreads) skinny_sm80(const SkinnyParams p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int slice = warp % kSplit;
  const int group = warp / kSplit;
  const int n_groups = blockDim.x / kGroupThreads;
  const int row_bytes = p.n_blocks * Tile::kColumns * 2 + kSm80RowPadding;
  const int buffer_floats = kSplit * sm80_partial_floats(p.n_tokens);
  auto* partials = reinterpret_cast<float*>(shared) + group * 2 * buffer_floats;
  unsigned char* rings = shared + n_groups * 2 * buffer_floats * 4;
  unsigned char* activations = rings + n_groups * kSplit * kStages * Tile::kStageBytes;
  const int n_blocks = p.n_blocks - (mutant(Mutant::linear_last_block) ? 1 : 0);
  const int stride = gridDim.x * n_groups;
  const int first_tile = blockIdx.x + gridDim.x * group;

  let_next_kernel_start();
  Ring<Tile, kStages> ring(p, lane, slice, n_blocks, first_tile, stride,
                           shared_address(rings + warp * kStages * Tile::kStageBytes));
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) ring.fill(p, lane, ring.begin + s * Tile::kStageBytes);
  wait_for_earlier_kernels();
  load_activations(p, activations, row_bytes);
  copy_async_commit();
  Output output(p, slice, lane);
  output.load_scale(p, first_tile);
  copy_async_wait<0>();
  __syncthreads();

  // Columns that are not there read the last one: a product never mixes columns.
  const uint32_t x = shared_address(activations) + min(lane / 4, p.n_tokens - 1) * row_bytes +
                     (lane % 4) * 16 + slice * (Tile::kColumns * 2);
  Sums acc = {};
  int buffer = 0;
  for (int tile = first_tile; tile < p.n_tiles; tile += stride) {
    uint32_t x_block = x;
    for (int i = ring.blocks; i > 0; --i) {
      copy_async_wait<kStages - 2>();
      Tile codes;
      codes.read(ring.current, lane);
      ring.fill(p, lane, mutant(Mutant::linear_stale_stage) ? ring.current : ring.last);
      if (!mutant(Mutant::ablate_math)) multiply(codes, x_block, acc);
      x_block += kSplit * Tile::kColumns * 2;
      ring.advance();
    }
    const int turn = mutant(Mutant::linear_stale_buffer) ? 0 : buffer;
    finish_tile<Tile>(p, partials + turn * buffer_floats, tile, slice, lane, group, output, acc);
    output.load_scale(p, tile + stride);
    buffer ^= 1;
    if (!mutant(Mutant::linear_accumulator_kept)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[0][i] = acc[1][i] = 0.0f;
    }
  }
}

template <typename Tile, int kStages>
void launch_stages(const SkinnyParams& p, int groups, int n_multiprocessors, cudaStream_t stream) {
  const auto kernel = skinny_sm80<Tile, kStages>;
  const auto bytes = static_cast<int>(skinny_sm80_bytes(p.n_blocks * Tile::kColumns, p.n_tokens,
                                                        {groups, kStages}, Tile::kStageBytes));
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
             "linear: dynamic shared memory");
  // Which block has a tile moves no bit. Few tiles are better off with one block a multiprocessor.
  const bool two = is_half_of_a_multiprocessor(bytes, p.block_shared_bytes) &&
                   p.n_tiles >= kManyTiles * n_multiprocessors;
  const int blocks = two ? 2 * n_multiprocessors : min(n_multiprocessors, p.n_tiles);
  launch_early(kernel, blocks, groups * kGroupThreads, bytes, stream, p, "linear skinny_sm80");
}

template <typename Tile>
void launch(const SkinnyParams& p, int n_multiprocessors, cudaStream_t stream) {
  arm_mutant();
  const Sm80Shape shape = skinny_sm80_shape(p.n_blocks * Tile::kColumns, p.n_tokens,
                                            Tile::kStageBytes, p.block_shared_bytes);
  if (shape.stages == 4) return launch_stages<Tile, 4>(p, shape.groups, n_multiprocessors, stream);
  if (shape.stages == 3) return launch_stages<Tile, 3>(p, shape.groups, n_multiprocessors, stream);
  launch_stages<Tile, 2>(p, shape.groups, n_multiprocessors, stream);
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
