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

// Where a warp is in a ring of kTiles.
template <int kTiles>
struct PlaceInRing {
  int tile = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    tile = tile == kTiles - 1 ? 0 : tile + 1;
    parity ^= tile == 0 ? 1u : 0u;
  }
};

template <int kRingTiles>
struct TileRing {
  using RingPlace = PlaceInRing<kRingTiles>;
  uint32_t tiles;
  uint32_t barriers;

  static constexpr int kBytes = kRingTiles * kTileBytes + 2 * kRingTiles * 8;

  __device__ __forceinline__ explicit TileRing(uint32_t at)
      : tiles(at), barriers(at + kRingTiles * kTileBytes) {}
  __device__ __forceinline__ uint32_t tile(RingPlace at) const {
    return tiles + at.tile * kTileBytes;
  }
  // What lies behind the ring, at a multiple of 16 bytes.
  __device__ __forceinline__ uint32_t end() const { return tiles + kBytes; }
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
  using Ring = TileRing<5>;
  static constexpr bool kCopied = true;  // positions that are not there are as they were in memory
  static constexpr int kWriters = 1;
  static constexpr int kRawBytes = 0;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kReaderRegisters = 240;

  __device__ __forceinline__ static void fill(const AttentionParams& p, const CUtensorMap& map,
                                              const Ring& ring, int n_pages, int) {
    if (threadIdx.x % 128 != 0) return;
    typename Ring::RingPlace at;
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
// vectors have one scale each; a thread 16 codes of every eighth position. Codes wait for their
// turn in a place of the thread's own, those of even tiles and those of odd ones.
struct PrefillSm90Int8 {
  using Numbers = Fp16Numbers;
  using Ring = TileRing<4>;
  static constexpr bool kCopied = false;
  static constexpr int kWriters = 4;
  static constexpr int kProducerRegisters = 56;
  static constexpr int kReaderRegisters = 224;
  static constexpr int kTurns = kPage / 8;
  static constexpr int kTurnBytes = 128 * 16;
  static constexpr int kRawBytes = 2 * kTurns * kTurnBytes;

  const AttentionParams& p;
  const Ring& ring;
  uint32_t raw;
  int n_pages;
  int n_positions;
  int row = threadIdx.x % 32 / 4;  // modulo 8, of all turns
  Ring::RingPlace at;

  // Asks for the codes of a tile and gets its scales: of turns t and 4 + t, t the thread's place
  // among four of a row; the other three have the others.
  __device__ __forceinline__ void fetch(int index, uint32_t page, uint16_t (&scales)[2]) const {
    const TileSource source(index, n_pages);
    const int panel = threadIdx.x / 32 % 4;
    const std::byte* codes = page_keys(p, page, blockIdx.x, kWidth) +
                             (source.values ? values_after_keys(p, kWidth) : 0) + row * kWidth +
                             panel * 64 + threadIdx.x % 4 * 16;
    const uint32_t to = raw + index % 2 * (kTurns * kTurnBytes);
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      copy_async_16(to + i * kTurnBytes, codes + i * (8 * kWidth));
    }
    copy_async_commit();
    const auto* scale =
        reinterpret_cast<const uint16_t*>(page_key_scales(p, page, blockIdx.x) +
                                          (source.values ? value_scales_after_key_scales(p) : 0)) +
        (row + threadIdx.x % 4 * 8) * 4 + panel;
    scales[0] = scale[0];
    scales[1] = scale[4 * 8 * 4];
  }
  __device__ __forceinline__ uint32_t page_of(int index) const {
    return page_at(p, TileSource(min(index, 2 * n_pages - 1), n_pages).page);
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

  // Tile `index`; then the one after the next is asked for.
  __device__ __forceinline__ void bring(int index, uint16_t (&scales)[2]) {
    const TileSource source(index, n_pages);
    const uint32_t page_after = page_of(index + 2);
    const bool all = !source.values || mutant(Mutant::attention_stale_values);
    const int n_valid = all ? kPage : n_positions - source.page * kPage;
    const uint32_t from = raw + index % 2 * (kTurns * kTurnBytes);
    copy_async_wait<1>();
    ring.wait_until_free(at);
    const uint32_t to = ring.tile(at) + threadIdx.x / 32 % 4 * kPanelBytes + row * 128 +
                        (threadIdx.x % 4 * 2 ^ row) * 16;
    constexpr int kAtOnce = 4;
#pragma unroll
    for (int first = 0; first < kTurns; first += kAtOnce) {
      uint4 codes[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) codes[i] = load_shared_16(from + (first + i) * kTurnBytes);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const uint32_t scale = __shfl_sync(kAllLanes, scales[first / 4], i, 4) * 0x10001u;
        convert(codes[i], row + 8 * (first + i) < n_valid ? scale : 0u, to + (first + i) * 1024);
      }
    }
    fence_for_wgmma();
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.full(at));
    at.advance();
    if (index + 2 < 2 * n_pages) {
      fetch(index + 2, page_after, scales);
    } else {
      copy_async_commit();
    }
  }

  __device__ __forceinline__ static void fill(const AttentionParams& p, const CUtensorMap&,
                                              const Ring& ring, int n_pages, int n_positions) {
    PrefillSm90Int8 cache{p, ring, ring.end() + threadIdx.x % 128 * 16, n_pages, n_positions};
    uint16_t even[2];
    uint16_t odd[2];
    cache.fetch(0, cache.page_of(0), even);
    cache.fetch(1, cache.page_of(1), odd);
    for (int index = 0; index < 2 * n_pages; index += 2) {
      cache.bring(index, even);
      cache.bring(index + 1, odd);
    }
    copy_async_wait<0>();
  }
};

}  // namespace lockstep::cuda
