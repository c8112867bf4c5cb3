// Products of any number of columns, sm_90a: as tiled_sm80.cu with the matrix instructions of a
// warp group, which has 64 rows. Codes become the operand in registers, activations are the one in
// shared memory. One chain of sums an element; where groups of columns have scales, a chain a group
// and its sum times the scale added to the chain of groups.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/mbarrier.cuh"
#include "engine/ops/common/cuda/wgmma.cuh"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/tile_shape.h"
#include "engine/ops/linear/cuda/tiled_shared.h"
#include "engine/ops/linear/cuda/tiled_store.cuh"
#include "engine/ops/linear/cuda/tiles_sm80.cuh"

namespace lockstep::cuda {
namespace {

// A block: rows in tiles of 16, a warp each, columns, and how many blocks share a multiprocessor.
template <int kRowTilesOfBlock, int kColumnsOfBlock, int kBlocksResident>
struct Shape {
  static constexpr int kRowTiles = kRowTilesOfBlock;
  static constexpr int kTokens = kColumnsOfBlock;
  static constexpr int kResident = kBlocksResident;
  static constexpr int kThreads = 32 * kRowTiles;
};

// A stage has a whole number of panels of 64 columns.
template <typename Tile, typename S>
struct Layout {
  static constexpr int kPanelBytes = S::kTokens * 128;  // activations of 64 columns of K
  // Sums of 128 columns share the scale of an FP8 block.
  static constexpr int kLeastColumns = Tile::kScaledGroups == 0 ? 64 : 128;
  static constexpr int kBlocks =
      Tile::kColumns < kLeastColumns ? kLeastColumns / Tile::kColumns : 1;
  static constexpr int kColumns = kBlocks * Tile::kColumns;
  static constexpr int kPanels = kColumns / 64;
  static constexpr int kActivationBytes = kPanels * kPanelBytes;
  static constexpr int kBlockBytes = S::kRowTiles * Tile::kStageBytes;
  static constexpr int kStageBytes =
      (kActivationBytes + kBlocks * kBlockBytes + 1023) / 1024 * 1024;
  static constexpr int kStages = tiled_hopper_bytes(S::kResident) / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024 + 16;  // to begin at x 1024
  static constexpr int kOutStride = tiled_out_stride(16 * S::kRowTiles);
  // A block that is alone has no other to work while its warp groups wait for each other: they may
  // drift apart by a stage instead, where there are stages enough.
  static constexpr bool kDrift = S::kResident == 1 && kStages >= 4;
  static constexpr int kAhead = kDrift ? 2 : 1;  // stages of the ring that are not in flight
  static_assert(kStages >= 2 * kAhead && kStageBytes * kStages >= S::kTokens * kOutStride * 4);
};

// What a thread copies of each stage: one row tile's codes a warp, and some activations.
template <typename Tile, typename S>
struct Copier {
  using L = Layout<Tile, S>;
  static constexpr int kVectors = L::kColumns / 8;  // of a row of activations
  static constexpr int kCopies = (S::kTokens * kVectors + S::kThreads - 1) / S::kThreads;
  static constexpr int kTokenStep = S::kThreads / kVectors;  // from one copy to the next
  static_assert(kTokenStep % 8 == 0 && kCopies >= 1);

  const SkinnyParams& p;
  Source source;
  int lane;
  int warp;
  int tile;
  int n_copies;  // columns that are there; the others stay what they are and are not stored
  int vector;
  const std::byte* from;
  uint32_t to;

  __device__ __forceinline__ Copier(const SkinnyParams& params, int first_tile, int first_token)
      : p(params),
        source(params, params.group_shift, threadIdx.x % 32),
        lane(threadIdx.x % 32),
        warp(threadIdx.x / 32) {
    tile = min(first_tile + warp, p.n_tiles - 1);  // rows that are not there repeat the last ones
    const int in_block = threadIdx.x / kVectors;
    vector = threadIdx.x % kVectors;
    const int token = first_token + in_block;
    n_copies = (min(p.n_tokens - token, S::kTokens - in_block) + kTokenStep - 1) / kTokenStep;
    from = p.x + token / 8 * p.group_bytes + token % 8 * (p.n_blocks * Tile::kColumns * 2) +
           vector * 16;
    to = vector / 8 * L::kPanelBytes + in_block * 128 + (vector % 8 ^ in_block % 8) * 16;
  }
  __device__ __forceinline__ void fill(int stage_index, uint32_t stage) const {
    const int block = stage_index * L::kBlocks;
#pragma unroll
    for (int i = 0; i < L::kBlocks; ++i) {
      if (block + i >= p.n_blocks) break;
      const Cursor at{tile, block + i, tile * p.n_blocks + block + i};
      Tile::copy(source, at, lane,
                 stage + L::kActivationBytes + i * L::kBlockBytes + warp * Tile::kStageBytes);
    }
    // The last stage of an odd number of blocks has half of its columns.
    if (block + vector * 8 / Tile::kColumns >= p.n_blocks) return;
    const std::byte* x = from + int64_t{stage_index} * (L::kColumns * 2);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (i < n_copies) copy_async_16(stage + to + i * (kTokenStep * 128), x);
      x += kTokenStep / 8 * p.group_bytes;
    }
  }
};

// Chunks kFirst .. kEnd - 1; `x` describes the activations of the block's first 16 columns. kNew:
// the first product starts the sums.
template <typename Tile, int kFirst, int kEnd, bool kNew, int kSums>
__device__ __forceinline__ void multiply(const Tile& tile, uint32_t x, float (&sums)[kSums]) {
  if constexpr (kFirst < kEnd) {
    uint32_t g[4], h[4];
    tile.template chunk<kFirst>(g, h);
    // A product of 16 columns has 32 bytes of each row, four a panel.
    constexpr int kProduct = 2 * kFirst;
    constexpr int kPanelBytes = 2 * kSums * 128;
    const uint32_t at = x + kProduct / 4 * kPanelBytes + kProduct % 4 * 32;
    wgmma_fence();
    if constexpr (kNew) {
      wgmma_k16_first<Tile::kBf16>(sums, g[0], h[0], g[1], h[1], wgmma_descriptor(at));
    } else {
      wgmma_k16<Tile::kBf16>(sums, g[0], h[0], g[1], h[1], wgmma_descriptor(at));
    }
    wgmma_k16<Tile::kBf16>(sums, g[2], h[2], g[3], h[3], wgmma_descriptor(at + 32));
    multiply<Tile, kFirst + 1, kEnd, false>(tile, x, sums);
  }
}

// Scales of rows g and g + 8 for one group of columns.
struct RowScales {
  float of[2];

  RowScales() = default;
  template <typename Tile>
  __device__ __forceinline__ RowScales(const Tile& tile, int group) {
    const int other = mutant(Mutant::tiled_group_scale) ? 1 : 0;
    of[0] = mutant(Mutant::tiled_group_unscaled) ? 1.0f : tile.group_scale(other, group);
    of[1] = mutant(Mutant::tiled_group_unscaled) ? 1.0f : tile.group_scale(1 - other, group);
  }
};

// acc += sums of a group of columns, whose products have ended, times its scales.
template <int kSums>
__device__ __forceinline__ void add_scaled(const RowScales& scales, float (&sums)[kSums],
                                           float (&acc)[kSums]) {
  hold_sums(sums);
#pragma unroll
  for (int i = 0; i < kSums; ++i) acc[i] = fmaf(sums[i], scales.of[i % 4 / 2], acc[i]);
}

// A block of columns whose groups have a scale each.
template <typename Tile, int kGroup, int kSums>
__device__ __forceinline__ void multiply_groups(const Tile& tile, uint32_t x, float (&acc)[kSums]) {
  if constexpr (kGroup < Tile::kScaledGroups) {
    constexpr int kEach = Tile::kChunks / Tile::kScaledGroups;
    float sums[kSums];
    multiply<Tile, kGroup * kEach, (kGroup + 1) * kEach, true>(tile, x, sums);
    wgmma_commit();
    wgmma_wait<0>();
    add_scaled(RowScales(tile, kGroup), sums, acc);
    multiply_groups<Tile, kGroup + 1>(tile, x, acc);
  }
}

// Starts the products of a stage that is one group; its scales come back.
template <typename Tile, typename S, int kSums>
__device__ __forceinline__ RowScales start_group(uint32_t at, int n_blocks, int warp, int lane,
                                                 float (&sums)[kSums]) {
  using L = Layout<Tile, S>;
  static_assert(Tile::kScaledGroups == 1 && L::kBlocks <= 2);
  const uint32_t codes = at + L::kActivationBytes + warp * Tile::kStageBytes;
  Tile tile;
  tile.read(codes, lane);
  multiply<Tile, 0, Tile::kChunks, true>(tile, at, sums);
  if (L::kBlocks == 2 && n_blocks > 1) {
    Tile second;
    second.read(codes + L::kBlockBytes, lane);
    multiply<Tile, 0, Tile::kChunks, false>(second, at + L::kPanelBytes, sums);
  }
  wgmma_commit();
  return RowScales(tile, 0);
}

// The stage at `at`; it has n_blocks blocks of columns or, at the end of K, fewer.
template <typename Tile, typename S, int kSums>
__device__ __forceinline__ void multiply_stage(uint32_t at, int n_blocks, int warp, int lane,
                                               float (&acc)[kSums]) {
  using L = Layout<Tile, S>;
  const uint32_t codes = at + L::kActivationBytes + warp * Tile::kStageBytes;
  if constexpr (Tile::kScaledGroups == 0) {
#pragma unroll
    for (int i = 0; i < L::kBlocks; ++i) {
      if (i >= n_blocks) break;
      Tile tile;
      tile.read(codes + i * L::kBlockBytes, lane);
      multiply<Tile, 0, Tile::kChunks, false>(tile, at + i * (Tile::kColumns * 2), acc);
    }
    wgmma_commit();
    wgmma_wait<0>();
  } else if constexpr (Tile::kScaledGroups == 1) {
    float sums[kSums];
    const RowScales scales = start_group<Tile, S>(at, n_blocks, warp, lane, sums);
    wgmma_wait<0>();
    add_scaled(scales, sums, acc);
  } else {
    Tile tile;
    tile.read(codes, lane);
    multiply_groups<Tile, 0>(tile, at, acc);
  }
}

// Between the copies of a stage and its products. enter<kPending>: the stage is complete where each
// thread's copies but the newest kPending groups are, and all threads have left the stage before.
// kDrift: a thread says so for the next stage already and may be one ahead of others.
template <bool kDrift, int kThreads>
struct StageBarrier {
  uint32_t at;  // two barriers in turn

  __device__ __forceinline__ explicit StageBarrier(const void* shared)
      : at(shared_address(shared)) {}
  template <int kPending>
  __device__ __forceinline__ void begin() const {
    if constexpr (kDrift) {
      if (threadIdx.x < 2) mbarrier_init(at + 8 * threadIdx.x, kThreads);
      copy_async_wait<kPending>();
      fence_for_wgmma();
      __syncthreads();
      mbarrier_arrive(at);
    }
  }
  template <int kPending>
  __device__ __forceinline__ void enter(int index) const {
    if constexpr (kDrift) {
      copy_async_wait<(kPending > 0 ? kPending - 1 : 0)>();
      fence_for_wgmma();
      mbarrier_arrive(at + (index + 1) % 2 * 8);
      mbarrier_wait(at + index % 2 * 8, index / 2 % 2);
    } else {
      copy_async_wait<kPending>();
      fence_for_wgmma();
      __syncthreads();
    }
  }
};

template <typename Tile, typename S>
__global__ void __launch_bounds__(S::kThreads, S::kResident) tiled_sm90(const SkinnyParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Layout<Tile, S>;
  extern __shared__ unsigned char raw[];
  unsigned char* shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const uint32_t ring = shared_address(shared);
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int first_token = blockIdx.x * S::kTokens;
  const int first_tile = blockIdx.y * S::kRowTiles;
  const Copier<Tile, S> copier(p, first_tile, mutant(Mutant::tiled_column_place) ? 0 : first_token);
  const int n_blocks = p.n_blocks - (mutant(Mutant::tiled_last_block) ? 1 : 0);
  const int n_stages = (n_blocks + L::kBlocks - 1) / L::kBlocks;
  // A group of copies for every stage, empty beyond the end: waiting counts groups.
  const auto fill = [&](int index, int stage) {
    if (index < n_stages) copier.fill(index, ring + stage * L::kStageBytes);
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < L::kStages - L::kAhead; ++s) fill(s, s);
  StageBarrier<L::kDrift, S::kThreads> barrier(shared + L::kStages * L::kStageBytes);
  barrier.template begin<L::kStages - L::kAhead - 1>();

  float acc[S::kTokens / 2] = {};
  int stage = 0;
  for (int index = 0; index < n_stages; ++index) {
    barrier.template enter<L::kStages - L::kAhead - 1>(index);
    // The stage kAhead before this one: every warp has left it.
    const int free_stage = stage < L::kAhead ? stage + L::kStages - L::kAhead : stage - L::kAhead;
    fill(index + L::kStages - L::kAhead, mutant(Mutant::tiled_stale_stage) ? stage : free_stage);
    multiply_stage<Tile, S>(ring + stage * L::kStageBytes, n_blocks - index * L::kBlocks, warp,
                            lane, acc);
    stage = stage == L::kStages - 1 ? 0 : stage + 1;
  }
  copy_async_wait<0>();
  __syncthreads();
  auto* out = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < S::kTokens / 2; ++i) {
    const int token = i / 4 * 8 + 2 * (lane % 4) + i % 2;
    out[token * L::kOutStride + warp * 16 + lane / 4 + i % 4 / 2 * 8] = acc[i];
  }
  store_tile<Tile, S::kThreads, 16 * S::kRowTiles>(p, out, first_tile * 16, first_token,
                                                   S::kTokens);
#endif
}

template <typename Tile, typename S>
void launch_shape(const SkinnyParams& p, cudaStream_t stream) {
  using L = Layout<Tile, S>;
  const auto kernel = tiled_sm90<Tile, S>;
  cuda_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kSharedBytes),
      "linear: dynamic shared memory");
  const dim3 grid(static_cast<unsigned>((p.n_tokens + S::kTokens - 1) / S::kTokens),
                  static_cast<unsigned>((p.n_tiles + S::kRowTiles - 1) / S::kRowTiles));
  kernel<<<grid, S::kThreads, L::kSharedBytes, stream>>>(p);
  cuda_check_launch("linear tiled_sm90");
}

template <typename Tile, size_t kIndex = 0>
void launch(const SkinnyParams& p, int shape, cudaStream_t stream) {
  arm_mutant();
  constexpr TileShape kShape =
      Tile::kScaledGroups != 0 ? kScaledTileShapes[kIndex] : kTileShapes[kIndex];
  if (shape == static_cast<int>(kIndex)) {
    return launch_shape<Tile, Shape<kShape.row_tiles, kShape.columns, kShape.resident>>(p, stream);
  }
  if constexpr (kIndex + 1 < kTileShapes.size()) launch<Tile, kIndex + 1>(p, shape, stream);
}

}  // namespace

void launch_tiled_sm90(Codec codec, int groups_in_block, const SkinnyParams& p, int shape,
                       cudaStream_t stream) {
  switch (codec) {
    case Codec::nvfp4:
      return launch<Nvfp4Tile>(p, shape, stream);
    case Codec::fp8:
      return launch<Fp8Tile>(p, shape, stream);
    case Codec::fp8_block:
      return launch<Fp8BlockTile>(p, shape, stream);
    case Codec::bf16:
      return launch<HalfTile<true>>(p, shape, stream);
    case Codec::f16:
      return launch<HalfTile<false>>(p, shape, stream);
    case Codec::int4:
      if (groups_in_block == 4) return launch<Int4Tile<4>>(p, shape, stream);
      if (groups_in_block == 2) return launch<Int4Tile<2>>(p, shape, stream);
      return launch<Int4Tile<1>>(p, shape, stream);
    default:
      no_kernel_for(codec);
  }
}

}  // namespace lockstep::cuda
