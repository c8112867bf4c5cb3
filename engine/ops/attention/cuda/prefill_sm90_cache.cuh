// How tiles of K and V come into shared memory for attention_prefill_sm90.cu. A tile is one page of
// one KV head: four panels of 64 values, a row of 128 bytes for each position, its vectors of 16
// bytes mixed with the row as wgmma.cuh says. Tiles lie in a ring in the order in which they are
// used: K of the first page, then K of the next page before V of each one.
#pragma once

#include <cuda.h>

#include "engine/ops/attention/cuda/attention_common.cuh"
#include "engine/ops/attention/cuda/int8_codes.cuh"
#include "engine/ops/attention/cuda/numbers_sm80.cuh"
#include "engine/ops/common/cuda/mbarrier.cuh"
#include "engine/ops/common/cuda/wgmma.cuh"

namespace lockstep::cuda {

inline constexpr int kPanelBytes = kPage * 128;
inline constexpr int kTileBytes = kWidth / 64 * kPanelBytes;
inline constexpr int kRingTiles = 5;
inline constexpr int kReaders = 8;  // warps that read tiles

// Tile `index` of a block that walks over n_pages pages.
struct TileSource {
  int page;
  bool values;

  __device__ __forceinline__ TileSource(int index, int n_pages) {
    values = index == 2 * n_pages - 1 || (index > 0 && index % 2 == 0);
    page = values ? (index - 1) / 2 : (index + 1) / 2;
  }
};

// Where a warp is in the ring.
struct RingPlace {
  int tile = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    tile = tile == kRingTiles - 1 ? 0 : tile + 1;
    parity ^= tile == 0 ? 1u : 0u;
  }
};

struct TileRing {
  uint32_t tiles;
  uint32_t barriers;

  static constexpr int kBytes = kRingTiles * kTileBytes + 2 * kRingTiles * 8;

  __device__ __forceinline__ explicit TileRing(uint32_t at)
      : tiles(at), barriers(at + kRingTiles * kTileBytes) {}
  __device__ __forceinline__ uint32_t tile(RingPlace at) const {
    return tiles + at.tile * kTileBytes;
  }
  __device__ __forceinline__ uint32_t full(RingPlace at) const { return barriers + at.tile * 8; }
  __device__ __forceinline__ uint32_t free(RingPlace at) const {
    return barriers + (kRingTiles + at.tile) * 8;
  }
  __device__ __forceinline__ void init(int n_writers) const {
    for (RingPlace at; at.parity == 0; at.advance()) {
      mbarrier_init(full(at), n_writers);
      mbarrier_init(free(at), kReaders);
    }
    mbarrier_init_fence();
  }
  __device__ __forceinline__ void wait_until_free(RingPlace at) const {
    mbarrier_wait(free(at), at.parity ^ 1);
    if (mutant(Mutant::attention_sm90_barrier)) __nanosleep(5000);
  }
  __device__ __forceinline__ void wait_until_full(RingPlace at) const {
    if (!mutant(Mutant::attention_sm90_barrier)) mbarrier_wait(full(at), at.parity);
  }
};

// Numbers of the cache as they are: one thread asks the copy engine for them.
template <typename N>
struct PrefillSm90Half {
  using Numbers = N;
  static constexpr bool kCopied = true;  // positions that are not there are as they were in memory
  static constexpr int kWriters = 1;
  static constexpr int kHeld = 4;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kReaderRegisters = 240;

  __device__ __forceinline__ static void fill(const AttentionParams& p, const CUtensorMap& map,
                                              const TileRing& ring, int n_pages, int) {
    if (threadIdx.x % 128 != 0) return;
    RingPlace at;
    for (int i = 0; i < 2 * n_pages; ++i) {
      const TileSource source(i, n_pages);
      const int64_t vectors = int64_t{page_at(p, source.page)} * 2 + (source.values ? 1 : 0);
      const auto row = static_cast<int>((vectors * p.n_kv_heads + blockIdx.x) * kPage);
      ring.wait_until_free(at);
      mbarrier_arrive_for_bytes(ring.full(at), kTileBytes);
      copy_box(ring.tile(at), &map, 0, row, 0, ring.full(at));
      at.advance();
    }
  }
};

// INT8 codes become code * scale rounded to binary16 on their way. A warp has one panel, whose
// vectors have one scale each; a thread 16 codes of every eighth position.
struct PrefillSm90Int8 {
  using Numbers = Fp16Numbers;
  static constexpr bool kCopied = false;
  static constexpr int kWriters = 4;
  static constexpr int kHeld = 0;
  static constexpr int kProducerRegisters = 56;
  static constexpr int kReaderRegisters = 224;
  static constexpr int kTurns = kPage / 8;

  const std::byte* codes;  // of this thread's first position
  const uint16_t* scales;  // of position 8 t, t the thread's place among four of a row

  __device__ __forceinline__ PrefillSm90Int8(const AttentionParams& p, TileSource source,
                                             uint32_t page) {
    const int panel = threadIdx.x / 32 % 4;
    const int row = threadIdx.x % 32 / 4;
    codes = page_keys(p, page, blockIdx.x, kWidth) +
            (source.values ? values_after_keys(p, kWidth) : 0) + row * kWidth + panel * 64 +
            threadIdx.x % 4 * 16;
    scales =
        reinterpret_cast<const uint16_t*>(page_key_scales(p, page, blockIdx.x) +
                                          (source.values ? value_scales_after_key_scales(p) : 0)) +
        (row + threadIdx.x % 4 * 8) * 4 + panel;
  }
  __device__ __forceinline__ void load(int turn, uint4& code) const {
    code = *reinterpret_cast<const uint4*>(codes + turn * (8 * kWidth));
  }
  __device__ __forceinline__ void load_scales(uint16_t (&to)[2]) const {
    to[0] = scales[0];
    to[1] = scales[4 * 8 * 4];
  }

  // 16 values, 32 bytes of the tile: vectors `to` and its neighbour.
  __device__ __forceinline__ static void convert(uint4 codes, uint32_t scale, uint32_t to) {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    uint32_t pairs[8];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      int8_values(words[w], pairs[2 * w], pairs[2 * w + 1]);
      pairs[2 * w] = half2_mul(pairs[2 * w], scale);
      pairs[2 * w + 1] = half2_mul(pairs[2 * w + 1], scale);
    }
    store_16(to, pairs);
    store_16(to ^ 16, pairs + 4);
  }
  __device__ __forceinline__ static void store_16(uint32_t to, const uint32_t* words) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  __device__ __forceinline__ static void fill(const AttentionParams& p, const CUtensorMap&,
                                              const TileRing& ring, int n_pages, int n_positions) {
    const int row = threadIdx.x % 32 / 4;
    const uint32_t place =
        threadIdx.x / 32 % 4 * kPanelBytes + row * 128 + (threadIdx.x % 4 * 2 ^ row) * 16;
    uint4 codes[kTurns];
    uint16_t scales[2];  // of turns t and 4 + t; the other three of the row have the others
    const PrefillSm90Int8 first(p, TileSource(0, n_pages), page_at(p, 0));
#pragma unroll
    for (int i = 0; i < kTurns; ++i) first.load(i, codes[i]);
    first.load_scales(scales);
    const int last = 2 * n_pages - 1;
    uint32_t next_page = page_at(p, TileSource(1, n_pages).page);
    RingPlace at;
    for (int index = 0; index <= last; ++index) {
      const TileSource source(index, n_pages);
      const PrefillSm90Int8 next(p, TileSource(min(index + 1, last), n_pages), next_page);
      next_page = page_at(p, TileSource(min(index + 2, last), n_pages).page);
      const bool all = !source.values || mutant(Mutant::attention_stale_values);
      const int n_valid = all ? kPage : n_positions - source.page * kPage;
      ring.wait_until_free(at);
      const uint32_t to = ring.tile(at) + place;
      uint16_t next_scales[2];
      next.load_scales(next_scales);
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        const uint32_t scale = __shfl_sync(kAllLanes, scales[i / 4], i % 4, 4) * 0x10001u;
        convert(codes[i], row + 8 * i < n_valid ? scale : 0u, to + i * 1024);
        next.load(i, codes[i]);
        __syncwarp();  // the compiler would gather the loads at the end, where they are waited for
      }
      scales[0] = next_scales[0];
      scales[1] = next_scales[1];
      fence_for_wgmma();
      __syncwarp();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.full(at));
      at.advance();
    }
  }
};

}  // namespace lockstep::cuda
