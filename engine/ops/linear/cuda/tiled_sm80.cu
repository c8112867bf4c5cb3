// Products of any number of columns, sm_80 and up: the prompt's route. A block has 128 rows and up
// to 128 columns; four by two warps each 32 rows and kGroups groups of eight columns. Codes and
// activations of a block of K come through a ring in shared memory; codes become fragments in
// registers, once for all columns of the warp. One chain of sums an element, block after block: its
// bits depend on K and codec alone, and the width of a tile moves speed only.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/tiled_shared.h"
#include "engine/ops/linear/cuda/tiled_store.cuh"
#include "engine/ops/linear/cuda/tiles_sm80.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowWarps = 4;
constexpr int kTokenWarps = 2;

template <int kGroups>
using Sums = float[2][kGroups][4];  // row tile of the warp, group of columns

template <typename Tile, int kGroups>
struct Layout {
  static constexpr int kTokens = kTokenWarps * kGroups * 8;
  static constexpr int kCodeBytes = kTiledRowTiles * Tile::kStageBytes;
  static constexpr int kRowBytes = tiled_row_bytes(Tile::kColumns);
  static constexpr int kStageBytes = tiled_stage_bytes(Tile::kStageBytes, Tile::kColumns, kTokens);
  static constexpr int kStages = tiled_stages(kStageBytes);
  static constexpr int kSharedBytes = tiled_shared_bytes(kStageBytes, kTokens);
  static_assert(kStages >= 2);
};

// What a thread copies of each block of K: one row tile's codes a warp, and some activations.
template <typename Tile, int kGroups>
struct Copier {
  using L = Layout<Tile, kGroups>;
  static constexpr int kVectors = Tile::kColumns / 8;  // of a row of activations
  static constexpr int kCopies = (L::kTokens * kVectors + kThreads - 1) / kThreads;

  static constexpr int kTokenStep = kThreads / kVectors;  // from one copy to the next
  static_assert(kTokenStep % 8 == 0);

  const SkinnyParams& p;
  Source source;
  int lane;
  int tile;
  int n_copies;  // columns that are there; the others stay what they are and are not stored
  uint32_t codes_at;
  const std::byte* from;
  uint32_t to;

  __device__ __forceinline__ Copier(const SkinnyParams& params, int first_tile, int first_token)
      : p(params), source(params, params.group_shift, threadIdx.x % 32), lane(threadIdx.x % 32) {
    const int warp = threadIdx.x / 32;
    tile = min(first_tile + warp, p.n_tiles - 1);  // rows that are not there repeat the last ones
    codes_at = warp * Tile::kStageBytes;
    const int in_block = threadIdx.x / kVectors;
    const int vector = threadIdx.x % kVectors;
    const int token = first_token + in_block;
    n_copies = in_block < L::kTokens ? (p.n_tokens - token + kTokenStep - 1) / kTokenStep : 0;
    from = p.x + token / 8 * p.group_bytes + token % 8 * (p.n_blocks * Tile::kColumns * 2) +
           vector * 16;
    to = L::kCodeBytes + in_block * L::kRowBytes + vector * 16;
  }
  __device__ __forceinline__ void fill(int block, uint32_t stage) const {
    const Cursor at{tile, block, tile * p.n_blocks + block};
    Tile::copy(source, at, lane, stage + codes_at);
    const std::byte* x = from + block * (Tile::kColumns * 2);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (i < n_copies) copy_async_16(stage + to + i * (kTokenStep * L::kRowBytes), x);
      x += kTokenStep / 8 * p.group_bytes;
    }
  }
};

template <typename Tile, int kGroups, int kFirst, int kEnd>
__device__ __forceinline__ void multiply_chunks(const Tile (&tiles)[2], uint32_t x,
                                                Sums<kGroups>& acc) {
  if constexpr (kFirst < kEnd) {
    uint32_t g[2][4], h[2][4];
    tiles[0].template chunk<kFirst>(g[0], h[0]);
    tiles[1].template chunk<kFirst>(g[1], h[1]);
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const uint4 v = chunk_of(x + n * (8 * Layout<Tile, kGroups>::kRowBytes), kFirst);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        multiply_pairs<Tile::kBf16, 0>(acc[r][n], g[r], h[r], v.x, v.y);
        multiply_pairs<Tile::kBf16, 2>(acc[r][n], g[r], h[r], v.z, v.w);
      }
    }
    multiply_chunks<Tile, kGroups, kFirst + 1, kEnd>(tiles, x, acc);
  }
}

// One block of columns of K.
template <typename Tile, int kGroups, int kPart = 0>
__device__ __forceinline__ void multiply(const Tile (&tiles)[2], uint32_t x, Sums<kGroups>& acc) {
  if constexpr (Tile::kScaledGroups == 0) {
    multiply_chunks<Tile, kGroups, 0, Tile::kChunks>(tiles, x, acc);
  } else if constexpr (kPart < Tile::kScaledGroups) {
    constexpr int kEach = Tile::kChunks / Tile::kScaledGroups;
    Sums<kGroups> part = {};
    multiply_chunks<Tile, kGroups, kPart * kEach, (kPart + 1) * kEach>(tiles, x, part);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          acc[r][n][i] = fmaf(part[r][n][i], tiles[r].group_scale(i / 2, kPart), acc[r][n][i]);
        }
      }
    }
    multiply<Tile, kGroups, kPart + 1>(tiles, x, acc);
  }
}

// Sums to shared memory, then to the output with the lanes of a warp along the rows.
template <typename Tile, int kGroups>
__device__ __forceinline__ void store(const SkinnyParams& p, float* out, int first_row,
                                      int first_token, const Sums<kGroups>& acc) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_row = warp % kRowWarps * 32 + lane / 4;
  const int warp_token = warp / kRowWarps * (kGroups * 8) + 2 * (lane % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out[(warp_token + 8 * n + i % 2) * tiled_out_stride(kTiledRows) + warp_row + 16 * r +
            i / 2 * 8] = acc[r][n][i];
      }
    }
  }
  store_tile<Tile, kThreads>(p, out, first_row, first_token, Layout<Tile, kGroups>::kTokens);
}

template <typename Tile, int kGroups>
__global__ void __launch_bounds__(kThreads, 2) tiled_sm80(const SkinnyParams p) {
  using L = Layout<Tile, kGroups>;
  extern __shared__ __align__(16) unsigned char shared[];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int first_token = blockIdx.x * L::kTokens;
  const int first_tile = blockIdx.y * kTiledRowTiles;
  const uint32_t ring = shared_address(shared);
  const Copier<Tile, kGroups> copier(p, first_tile,
                                     mutant(Mutant::tiled_column_place) ? 0 : first_token);
  const int n_blocks = p.n_blocks - (mutant(Mutant::tiled_last_block) ? 1 : 0);
  // A group of copies for every stage, empty beyond the end: waiting counts groups.
  const auto fill = [&](int block, int stage) {
    if (block < n_blocks) copier.fill(block, ring + stage * L::kStageBytes);
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < L::kStages - 1; ++s) fill(s, s);

  const uint32_t codes = warp % kRowWarps * (2 * Tile::kStageBytes);
  const uint32_t x =
      L::kCodeBytes + (warp / kRowWarps * (kGroups * 8) + lane / 4) * L::kRowBytes + lane % 4 * 16;
  Sums<kGroups> acc = {};
  int stage = 0;
  for (int block = 0; block < n_blocks; ++block) {
    copy_async_wait<L::kStages - 2>();
    __syncthreads();
    // The stage before this one: every warp has left it.
    const int free_stage = stage == 0 ? L::kStages - 1 : stage - 1;
    fill(block + L::kStages - 1, mutant(Mutant::tiled_stale_stage) ? stage : free_stage);
    const uint32_t at = ring + stage * L::kStageBytes;
    Tile tiles[2];
    tiles[0].read(at + codes, lane);
    tiles[1].read(at + codes + Tile::kStageBytes, lane);
    multiply<Tile, kGroups>(tiles, at + x, acc);
    stage = stage == L::kStages - 1 ? 0 : stage + 1;
  }
  copy_async_wait<0>();
  __syncthreads();
  store<Tile, kGroups>(p, reinterpret_cast<float*>(shared), first_tile * 16, first_token, acc);
}

template <typename Tile, int kGroups>
void launch_width(const SkinnyParams& p, cudaStream_t stream) {
  using L = Layout<Tile, kGroups>;
  const auto kernel = tiled_sm80<Tile, kGroups>;
  cuda_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kSharedBytes),
      "linear: dynamic shared memory");
  const dim3 grid(static_cast<unsigned>((p.n_tokens + L::kTokens - 1) / L::kTokens),
                  static_cast<unsigned>((p.n_tiles + kTiledRowTiles - 1) / kTiledRowTiles));
  kernel<<<grid, kThreads, L::kSharedBytes, stream>>>(p);
  cuda_check_launch("linear tiled_sm80");
}

template <typename Tile>
void launch(const SkinnyParams& p, cudaStream_t stream) {
  arm_mutant();
  if (p.n_tokens <= 32) return launch_width<Tile, 2>(p, stream);
  // Scaled sums take twice the registers.
  if (p.n_tokens <= 64 || Tile::kScaledGroups != 0) return launch_width<Tile, 4>(p, stream);
  if constexpr (Tile::kScaledGroups == 0) launch_width<Tile, 8>(p, stream);
}

}  // namespace

void launch_tiled_sm80(Codec codec, int groups_in_block, const SkinnyParams& p,
                       cudaStream_t stream) {
  switch (codec) {
    case Codec::nvfp4:
      return launch<Nvfp4Tile>(p, stream);
    case Codec::fp8:
      return launch<Fp8Tile>(p, stream);
    case Codec::fp8_block:
      return launch<Fp8BlockTile>(p, stream);
    case Codec::bf16:
      return launch<HalfTile<true>>(p, stream);
    case Codec::f16:
      return launch<HalfTile<false>>(p, stream);
    case Codec::int4:
      if (groups_in_block == 4) return launch<Int4Tile<4>>(p, stream);
      if (groups_in_block == 2) return launch<Int4Tile<2>>(p, stream);
      return launch<Int4Tile<1>>(p, stream);
    default:
      no_kernel_for(codec);
  }
}

}  // namespace lockstep::cuda
