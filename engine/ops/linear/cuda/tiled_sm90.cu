// Products of any number of columns, sm_90a: as tiled_sm80.cu with the matrix instructions of a
// warp group. A block has 128 rows and 128 columns; each of two warp groups 64 rows. Codes become
// the operand in registers, activations are the one in shared memory. One chain of sums an element.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/wgmma.cuh"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/tiled_shared.h"
#include "engine/ops/linear/cuda/tiled_store.cuh"
#include "engine/ops/linear/cuda/tiles_sm80.cuh"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

// A stage has a whole number of panels of 64 columns.
template <typename Tile, int kTokens>
struct Layout {
  static constexpr int kPanelBytes = kTokens * 128;  // activations of 64 columns of K
  static constexpr int kBlocks = Tile::kColumns < 64 ? 64 / Tile::kColumns : 1;
  static constexpr int kColumns = kBlocks * Tile::kColumns;
  static constexpr int kPanels = kColumns / 64;
  static constexpr int kActivationBytes = kPanels * kPanelBytes;
  static constexpr int kBlockBytes = kTiledRowTiles * Tile::kStageBytes;
  static constexpr int kStageBytes = kActivationBytes + kBlocks * kBlockBytes;  // x 1024
  static constexpr int kStages = tiled_hopper_bytes(kTokens) / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // to begin at x 1024
  static_assert(kStageBytes % 1024 == 0 && kStages >= 2);
  static_assert(kSharedBytes >= kTokens * kTiledOutStride * 4 + 1024);
};

// What a thread copies of each stage: one row tile's codes a warp, and some activations.
template <typename Tile, int kTokens>
struct Copier {
  using L = Layout<Tile, kTokens>;
  static constexpr int kVectors = L::kColumns / 8;  // of a row of activations
  static constexpr int kCopies = kTokens * kVectors / kThreads;
  static constexpr int kTokenStep = kThreads / kVectors;  // from one copy to the next
  static_assert(kTokenStep % 8 == 0);

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
        source(params, threadIdx.x % 32),
        lane(threadIdx.x % 32),
        warp(threadIdx.x / 32) {
    tile = min(first_tile + warp, p.n_tiles - 1);  // rows that are not there repeat the last ones
    const int in_block = threadIdx.x / kVectors;
    vector = threadIdx.x % kVectors;
    const int token = first_token + in_block;
    n_copies = (p.n_tokens - token + kTokenStep - 1) / kTokenStep;
    from = p.x + token / 8 * p.group_bytes + token % 8 * (p.n_blocks * Tile::kColumns * 2) +
           vector * 16;
    to = vector / 8 * L::kPanelBytes + in_block * 128 + (vector % 8 ^ in_block % 8) * 16;
  }
  __device__ __forceinline__ void fill(int stage_index, uint32_t stage) const {
    const int block = stage_index * L::kBlocks;
#pragma unroll
    for (int i = 0; i < L::kBlocks; ++i) {
      if (block + i >= p.n_blocks) break;
      const Cursor at{tile, block + i, tile * p.n_blocks + block + i, 0};
      Tile::copy(p, source, at, lane,
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

// Chunk by chunk; `x` describes the activations of the block's first 16 columns.
template <typename Tile, int kFirst, int kSums>
__device__ __forceinline__ void multiply(const Tile& tile, uint32_t x, float (&acc)[kSums]) {
  if constexpr (kFirst < Tile::kChunks) {
    uint32_t g[4], h[4];
    tile.template chunk<kFirst>(g, h);
    // A product of 16 columns has 32 bytes of each row, four a panel.
    constexpr int kProduct = 2 * kFirst;
    const uint32_t at = x + kProduct / 4 * Layout<Tile, 2 * kSums>::kPanelBytes + kProduct % 4 * 32;
    wgmma_fence();
    wgmma_k16<Tile::kBf16>(acc, g[0], h[0], g[1], h[1], wgmma_descriptor(at));
    wgmma_k16<Tile::kBf16>(acc, g[2], h[2], g[3], h[3], wgmma_descriptor(at + 32));
    wgmma_commit();
    multiply<Tile, kFirst + 1>(tile, x, acc);
  }
}

template <typename Tile, int kTokens>
__global__ void __launch_bounds__(kThreads, kTokens > 32 ? 2 : 3) tiled_sm90(const SkinnyParams p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using L = Layout<Tile, kTokens>;
  extern __shared__ unsigned char raw[];
  unsigned char* shared = raw + (1024 - shared_address(raw) % 1024) % 1024;
  const uint32_t ring = shared_address(shared);
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int first_token = blockIdx.x * kTokens;
  const int first_tile = blockIdx.y * kTiledRowTiles;
  const Copier<Tile, kTokens> copier(p, first_tile,
                                     mutant(Mutant::tiled_column_place) ? 0 : first_token);
  const int n_blocks = p.n_blocks - (mutant(Mutant::tiled_last_block) ? 1 : 0);
  const int n_stages = (n_blocks + L::kBlocks - 1) / L::kBlocks;
  // A group of copies for every stage, empty beyond the end: waiting counts groups.
  const auto fill = [&](int index, int stage) {
    if (index < n_stages) copier.fill(index, ring + stage * L::kStageBytes);
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < L::kStages - 1; ++s) fill(s, s);

  float acc[kTokens / 2] = {};
  int stage = 0;
  for (int index = 0; index < n_stages; ++index) {
    copy_async_wait<L::kStages - 2>();
    fence_for_wgmma();
    __syncthreads();
    // The stage before this one: every warp has left it.
    const int free_stage = stage == 0 ? L::kStages - 1 : stage - 1;
    fill(index + L::kStages - 1, mutant(Mutant::tiled_stale_stage) ? stage : free_stage);
    const uint32_t at = ring + stage * L::kStageBytes;
#pragma unroll
    for (int i = 0; i < L::kBlocks; ++i) {
      if (index * L::kBlocks + i >= n_blocks) break;
      Tile tile;
      tile.read(at + L::kActivationBytes + i * L::kBlockBytes + warp * Tile::kStageBytes, lane);
      multiply<Tile, 0>(tile, at + i * (Tile::kColumns * 2), acc);
    }
    wgmma_wait<0>();
    stage = stage == L::kStages - 1 ? 0 : stage + 1;
  }
  copy_async_wait<0>();
  __syncthreads();
  auto* out = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) {
    const int token = i / 4 * 8 + 2 * (lane % 4) + i % 2;
    out[token * kTiledOutStride + warp * 16 + lane / 4 + i % 4 / 2 * 8] = acc[i];
  }
  store_tile<Tile, kThreads>(p, out, first_tile * 16, first_token, kTokens);
#endif
}

template <typename Tile, int kTokens>
void launch_width(const SkinnyParams& p, cudaStream_t stream) {
  using L = Layout<Tile, kTokens>;
  const auto kernel = tiled_sm90<Tile, kTokens>;
  cuda_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kSharedBytes),
      "linear: dynamic shared memory");
  const dim3 grid(static_cast<unsigned>((p.n_tokens + kTokens - 1) / kTokens),
                  static_cast<unsigned>((p.n_tiles + kTiledRowTiles - 1) / kTiledRowTiles));
  kernel<<<grid, kThreads, L::kSharedBytes, stream>>>(p);
  cuda_check_launch("linear tiled_sm90");
}

template <typename Tile>
void launch(const SkinnyParams& p, cudaStream_t stream) {
  arm_mutant();
  if (p.n_tokens <= 32) return launch_width<Tile, 32>(p, stream);
  if (p.n_tokens <= 64) return launch_width<Tile, 64>(p, stream);
  launch_width<Tile, 128>(p, stream);
}

}  // namespace

void launch_tiled_sm90(Codec codec, const SkinnyParams& p, cudaStream_t stream) {
  switch (codec) {
    case Codec::nvfp4:
      return launch<Nvfp4Tile>(p, stream);
    case Codec::fp8:
      return launch<Fp8Tile>(p, stream);
    case Codec::bf16:
      return launch<HalfTile<true>>(p, stream);
    case Codec::f16:
      return launch<HalfTile<false>>(p, stream);
    default:
      no_kernel_for(codec);
  }
}

}  // namespace lockstep::cuda
