// Products of up to eight columns, sm_80 and up. A block stays on its multiprocessor: it reads the
// activations once into shared memory, then its groups of four warps stream through tiles of 16
// rows, of several matrices one after the other. A warp keeps kStages - 1 blocks of weights in
// flight, across the ends of tiles, so that the memory never waits for a sum. The next kernel of
// the stream may start beside this one and fill its own rings.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/early_launch.cuh"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/tiles_sm80.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kSplit = kSm80SplitWarps;
constexpr int kGroupThreads = 32 * kSplit;
constexpr int kMaxThreads = 1024;
constexpr int kManyTiles = 9;  // of two multiprocessors

__device__ __forceinline__ void group_barrier(int group) {
  if (mutant(Mutant::linear_missing_barrier)) return;
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroupThreads) : "memory");
}

// Rows of prepared activations to shared memory; complete after a barrier of the block.
__device__ __forceinline__ void load_activations(const SkinnyGroupParams& p, const std::byte* x,
                                                 unsigned char* to, int row_bytes) {
  const int n_vectors = (row_bytes - kSm80RowPadding) / 16;
  for (int token = 0; token < p.n_tokens; ++token) {
    for (int i = threadIdx.x; i < n_vectors; i += blockDim.x) {
      copy_async_16(to + token * row_bytes + i * 16, x + (token * n_vectors + i) * 16);
    }
  }
}

// The tiles of a group of warps: every stride-th of all matrices of a part one after the other;
// kSwiglu: of the first, each with the same tile of the second.
template <bool kSwiglu>
struct Walk {
  int tile;
  int matrix;
  int end;    // of the part's matrices
  int local;  // tile of the matrix

  __device__ __forceinline__ Walk(const SkinnyGroupParams& p, int part, int first)
      : tile(first), matrix(part * p.n_matrices), end(matrix + p.n_matrices), local(first) {
    settle(p);
  }
  __device__ __forceinline__ void settle(const SkinnyGroupParams& p) {
    if constexpr (!kSwiglu) {
      while (matrix + 1 < end && local >= p.matrices[matrix].n_tiles) {
        local -= p.matrices[matrix].n_tiles;
        if (mutant(Mutant::skinny_matrix_border) && local > 0) --local;
        ++matrix;
      }
    }
  }
  __device__ __forceinline__ void next(const SkinnyGroupParams& p, int stride) {
    if constexpr (kSwiglu) {
      matrix ^= 1;
      if (matrix == 1) return;
    }
    tile += stride;
    local += stride;
    settle(p);
  }
};

// The output of each tile that a thread of a group adds up.
struct Output {
  int token;
  int row;  // in the tile
  bool inside;
  float factor;
  float row_scale;    // of the next tile, loaded long before
  float gate = 0.0f;  // of the row, where the next tile is what it gates

  __device__ __forceinline__ Output(const SkinnyGroupParams& p, const std::byte* x, int slice,
                                    int lane) {
    const int index = slice * 32 + lane;
    token = index / 16;
    row = index % 16;
    inside = token < p.n_tokens || mutant(Mutant::linear_token_tail);
    const bool scaled = token < p.n_tokens && !mutant(Mutant::linear_factor_lost);
    factor = scaled ? reinterpret_cast<const float*>(x + p.factors_offset)[token] : 1.0f;
  }
  template <bool kSwiglu>
  __device__ __forceinline__ void load_scale(const SkinnyGroupParams& p, const Walk<kSwiglu>& at) {
    if (inside && at.tile < p.n_tiles) {
      row_scale = p.matrices[at.matrix].row_scale[at.local * 16 + row];
    }
  }
};

// Sums of rows g and g + 8 with two columns of activations. Two chains, added at the end of a tile
// or of a group that has a scale: the second product of a chunk does not wait for the first.
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
    for (int i = 0; i < 4; ++i) {
      acc[0][i] = fmaf(part[0][i] + part[1][i], tile.group_scale(i / 2, kGroup), acc[0][i]);
    }
    multiply<Tile, kGroup + 1>(tile, x, acc);
  }
}

// Adds the sums of a group's warps in their order and stores the tile. kSwiglu: rows of the first
// matrix wait for those of the second.
template <typename Tile, bool kSwiglu>
__device__ __forceinline__ void finish_tile(const SkinnyGroupParams& p, const Walk<kSwiglu>& at,
                                            float* partials, int slice, int lane, int group,
                                            Output& output, const Sums& acc) {
  const int warp_floats = sm80_partial_floats(p.n_tokens);
  const int g = lane / 4;
  const int token0 = 2 * (lane % 4);
  if (token0 < p.n_tokens || mutant(Mutant::linear_token_tail)) {
    const int place = mutant(Mutant::skinny_share) ? (slice + at.tile) % kSplit : slice;
    float* mine = partials + place * warp_floats + token0 * kSm80PartialStride + g;
    mine[0] = acc[0][0] + acc[1][0];
    mine[kSm80PartialStride] = acc[0][1] + acc[1][1];
    mine[8] = acc[0][2] + acc[1][2];
    mine[kSm80PartialStride + 8] = acc[0][3] + acc[1][3];
  }
  group_barrier(group);
  const StoredMatrix& matrix = p.matrices[at.matrix];
  const int row = at.local * 16 + output.row;
  const bool row_inside = row < matrix.n_rows || mutant(Mutant::linear_row_tail);
  if (!output.inside || !row_inside) return;
  const float* from = partials + output.token * kSm80PartialStride + output.row;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kSplit; ++w) {
    const bool backwards = mutant(Mutant::linear_order_of_one) && p.n_tokens == 1;
    sum += from[(backwards ? kSplit - 1 - w : w) * warp_floats];
  }
  float value = sum * (output.factor * Tile::kFactor) * output.row_scale;
  if constexpr (kSwiglu) {
    value = round_bf16(value);
    if (at.matrix == 0) {
      if (!mutant(Mutant::swiglu_gate_lost)) output.gate = silu_f32(value);
      return;
    }
    value = output.gate * value;
  }
  store_output(p.matrices[kSwiglu ? 0 : at.matrix], output.token, row, value);
}

// What a warp copies ahead: a ring of stages over the blocks of its tiles, in the order of use.
template <typename Tile, bool kSwiglu, int kStages>
struct Ring {
  Walk<kSwiglu> walk;
  Source source;
  Cursor ahead;
  int left;    // blocks of this warp in the tile, the one at `ahead` included
  int blocks;  // of this warp in a tile
  int slice;
  int tile_stride;  // to the next tile of the group
  uint32_t begin;
  uint32_t current;
  uint32_t last;  // read in the pass before: may be filled again

  __device__ __forceinline__ Ring(const SkinnyGroupParams& p, const Walk<kSwiglu>& first, int lane,
                                  int warp_slice, int n_blocks, int stride, uint32_t at)
      : walk(first),
        blocks((n_blocks - warp_slice + kSplit - 1) / kSplit),
        slice(warp_slice),
        tile_stride(stride),
        begin(at),
        current(at),
        last(at + (kStages - 1) * Tile::kStageBytes) {
    if (blocks == 0) walk.tile = p.n_tiles;
    enter_tile(p, lane);
  }
  __device__ __forceinline__ void enter_tile(const SkinnyGroupParams& p, int lane) {
    source = Source(p.matrices[walk.matrix], p.group_shift, lane);
    ahead = {walk.local, slice, walk.local * p.n_blocks + slice};
    left = blocks;
  }
  // One group of copies, empty beyond the end: waiting counts groups.
  __device__ __forceinline__ void fill(const SkinnyGroupParams& p, int lane, uint32_t stage) {
    if (walk.tile < p.n_tiles && !mutant(Mutant::ablate_loads)) {
      Tile::copy(source, ahead, lane, stage);
      ahead.record += kSplit;
      ahead.block += kSplit;
      if (--left == 0) {
        walk.next(p, tile_stride);
        enter_tile(p, lane);
      }
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
template <typename Tile, bool kSwiglu, int kStages>
__global__ void __launch_bounds__(kMaxThreads)
    skinny_sm80(const __grid_constant__ SkinnyGroupParams p) {
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
  const int part = blockIdx.x % p.n_parts;
  const std::byte* prepared = p.x[mutant(Mutant::skinny_half) ? 0 : part];
  const int blocks_of_part = gridDim.x / p.n_parts;
  const int stride = blocks_of_part * n_groups;
  Walk<kSwiglu> at(p, part, blockIdx.x / p.n_parts + blocks_of_part * group);

  let_next_kernel_start();
  Ring<Tile, kSwiglu, kStages> ring(p, at, lane, slice, n_blocks, stride,
                                    shared_address(rings + warp * kStages * Tile::kStageBytes));
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) ring.fill(p, lane, ring.begin + s * Tile::kStageBytes);
  wait_for_earlier_kernels();
  load_activations(p, prepared, activations, row_bytes);
  copy_async_commit();
  Output output(p, prepared, slice, lane);
  output.load_scale(p, at);
  copy_async_wait<0>();
  __syncthreads();

  // Columns that are not there read the last one: a product never mixes columns.
  const uint32_t x = shared_address(activations) + min(lane / 4, p.n_tokens - 1) * row_bytes +
                     (lane % 4) * 16 + slice * (Tile::kColumns * 2);
  Sums acc = {};
  int buffer = 0;
  while (at.tile < p.n_tiles) {
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
    finish_tile<Tile>(p, at, partials + turn * buffer_floats, slice, lane, group, output, acc);
    at.next(p, stride);
    output.load_scale(p, at);
    buffer ^= 1;
    if (!mutant(Mutant::linear_accumulator_kept)) {
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[0][i] = acc[1][i] = 0.0f;
    }
  }
}

// Blocks and groups of a launch. Which of them has a tile moves no bit. Few tiles are better off
// with one block a multiprocessor, and a block needs no more groups than it has tiles.
struct Grid {
  int blocks;
  int groups;
};

template <bool kSwiglu>
Grid grid_of(const SkinnyGroupParams& p, int most_groups, bool half_fits, int n_multiprocessors) {
  const int n_tiles = p.n_tiles * (kSwiglu ? 2 : p.n_parts);
  const bool two = half_fits && 2 * n_tiles >= kManyTiles * n_multiprocessors;
  const int most_blocks = (two ? 2 * n_multiprocessors : n_multiprocessors) / p.n_parts;
  const int of_part = max(min(most_blocks, p.n_tiles), 1);
  const int tiles_of_block = (p.n_tiles + of_part - 1) / of_part;
  return {of_part * p.n_parts, min(most_groups, tiles_of_block)};
}

template <typename Tile, bool kSwiglu, int kStages>
void launch_stages(const SkinnyGroupParams& p, int most_groups, int n_multiprocessors,
                   cudaStream_t stream) {
  const auto kernel = skinny_sm80<Tile, kSwiglu, kStages>;
  const auto bytes_with = [&p](int groups) {
    return static_cast<int>(skinny_sm80_bytes(p.n_blocks * Tile::kColumns, p.n_tokens,
                                              {groups, kStages}, Tile::kStageBytes));
  };
  // The most there is: another thread may launch the kernel with other sizes.
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  p.block_shared_bytes),
             "linear: dynamic shared memory");
  const bool half_fits = is_half_of_a_multiprocessor(bytes_with(most_groups), p.block_shared_bytes);
  const Grid grid = grid_of<kSwiglu>(p, most_groups, half_fits, n_multiprocessors);
  launch_early(kernel, grid.blocks, grid.groups * kGroupThreads, bytes_with(grid.groups), stream, p,
               "linear skinny_sm80");
}

template <typename Tile, bool kSwiglu>
void launch(const SkinnyGroupParams& p, int n_multiprocessors, cudaStream_t stream) {
  arm_mutant();
  const Sm80Shape shape = skinny_sm80_shape(p.n_blocks * Tile::kColumns, p.n_tokens,
                                            Tile::kStageBytes, p.block_shared_bytes);
  if (shape.stages == 4) {
    return launch_stages<Tile, kSwiglu, 4>(p, shape.groups, n_multiprocessors, stream);
  }
  if (shape.stages == 3) {
    return launch_stages<Tile, kSwiglu, 3>(p, shape.groups, n_multiprocessors, stream);
  }
  launch_stages<Tile, kSwiglu, 2>(p, shape.groups, n_multiprocessors, stream);
}

template <typename Tile>
void launch(const SkinnyGroupParams& p, bool swiglu, int n_multiprocessors, cudaStream_t stream) {
  if (swiglu) return launch<Tile, true>(p, n_multiprocessors, stream);
  launch<Tile, false>(p, n_multiprocessors, stream);
}

}  // namespace

void launch_skinny_sm80(Codec codec, int groups_in_block, const SkinnyGroupParams& p, bool swiglu,
                        int n_multiprocessors, cudaStream_t stream) {
  switch (codec) {
    case Codec::nvfp4:
      return launch<Nvfp4Tile>(p, swiglu, n_multiprocessors, stream);
    case Codec::fp8:
      return launch<Fp8Tile>(p, swiglu, n_multiprocessors, stream);
    case Codec::fp8_block:
      return launch<Fp8BlockTile>(p, swiglu, n_multiprocessors, stream);
    case Codec::bf16:
      return launch<HalfTile<true>>(p, swiglu, n_multiprocessors, stream);
    case Codec::f16:
      return launch<HalfTile<false>>(p, swiglu, n_multiprocessors, stream);
    case Codec::int4:
      if (groups_in_block == 4) return launch<Int4Tile<4>>(p, swiglu, n_multiprocessors, stream);
      if (groups_in_block == 2) return launch<Int4Tile<2>>(p, swiglu, n_multiprocessors, stream);
      return launch<Int4Tile<1>>(p, swiglu, n_multiprocessors, stream);
    default:
      no_kernel_for(codec);
  }
}

}  // namespace lockstep::cuda
