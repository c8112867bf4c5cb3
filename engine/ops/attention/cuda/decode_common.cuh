// K and V of a page of decode: how a warp copies them, and what INT8 caches of both families share.
// Lane (g, t) = (lane / 4, lane mod 4). A warp copies what it alone reads: all values of its 16
// positions of K, and its 64 values of all 64 positions of V.
//
// Row r of a fragment of K is position r / 2 + 4 (r mod 2) of the first or second eight of the
// warp's 16. So the words of P that a lane writes lie side by side, and the positions of V that the
// four lanes t read lie in different banks. Chunks of 16 bytes are mixed with bits of the position
// for the same reason.
#pragma once

#include "engine/ops/attention/cuda/attention_common.cuh"
#include "engine/ops/attention/cuda/int8_codes.cuh"
#include "engine/ops/attention/cuda/numbers_sm80.cuh"

namespace lockstep::cuda {

inline constexpr int kDecodeWarps = 4;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;
inline constexpr int kSlice = 64;                             // values of V that a warp adds up
inline constexpr int kWarpKeys = 16;                          // positions of K that a warp scores
inline constexpr int kScaleBytes = kDecodeWarps * kPage * 2;  // V scales of a step

struct LaneOf {
  __device__ __forceinline__ LaneOf() {}
  int warp = threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  int g = threadIdx.x % 32 / 4;
  int t = threadIdx.x % 4;
  // Position of row g among the warp's 16; row g + 8 is 8 further.
  __device__ __forceinline__ int near() const { return g / 2 + 4 * (g % 2); }
};

// Where this lane's copies start: offsets from the start of a page, addresses in shared memory. Two
// of the latter: rows whose chunks are mixed in the one or the other way.
template <typename Cache>
struct LaneCopies {
  int keys_from;
  int values_from;
  SharedAddress keys_to[2];
  SharedAddress values_to[2];

  __device__ __forceinline__ LaneCopies(const AttentionParams& p, unsigned char* keys,
                                        unsigned char* values, LaneOf l) {
    constexpr int kRow = Cache::kRowBytes;
    constexpr int kPart = kRow / kDecodeWarps;
    const int head = static_cast<int>(blockIdx.x) * kPage * kRow;
    keys_from = head + l.warp * kWarpKeys * kRow + l.lane * 16;
    const int key_row = l.lane * 16 / kRow;
    const int key_chunk = l.lane % (kRow / 16);
    const int value_row = l.lane / (kPart / 16);
    const int value_chunk = l.lane % (kPart / 16);
    values_from =
        p.n_kv_heads * kPage * kRow + head + value_row * kRow + l.warp * kPart + value_chunk * 16;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      keys_to[i] = shared_address(keys + key_row * kRow + (key_chunk ^ (4 * i)) * 16);
      values_to[i] = shared_address(values + value_row * kPart +
                                    (value_chunk ^ Cache::value_mix(value_row, 8 * i)) * 16);
    }
  }

  // Start the copies of a page, or of nothing: the group is committed anyway, so that waiting
  // counts groups.
  __device__ __forceinline__ void start_keys(const std::byte* page) const {
    if (page != nullptr && !mutant(Mutant::ablate_loads)) copy_keys<0>(page);
    copy_async_commit();
  }
  __device__ __forceinline__ void start_values(const std::byte* page) const {
    if (page != nullptr && !mutant(Mutant::ablate_loads)) copy_values<0>(page);
    copy_async_commit();
  }

  // Copy i of the 16 consecutive positions of K that this warp scores.
  template <int i>
  __device__ __forceinline__ void copy_keys(const std::byte* page) const {
    if constexpr (i < kWarpKeys * Cache::kRowBytes / 512) {
      copy_async_16_at<i * 512, i * 512>(keys_to[i * 512 / Cache::kRowBytes / 4 % 2],
                                         page + keys_from);
      copy_keys<i + 1>(page);
    }
  }
  // Copy i of this warp's 64 values of all positions.
  template <int i>
  __device__ __forceinline__ void copy_values(const std::byte* page) const {
    constexpr int kRows = 512 * kDecodeWarps / Cache::kRowBytes;  // of one instruction
    if constexpr (i < kPage / kRows) {
      copy_async_16_at<i * 512, i * kRows * Cache::kRowBytes>(values_to[i * kRows / 8 % 2],
                                                              page + values_from);
      copy_values<i + 1>(page);
    }
  }
};

// Scales of the next step, loaded early: of K for rows g and g + 8, of V for half a position.
struct Int8Scales {
  uint2 near;
  uint2 far;
  uint32_t values;

  // From the start of a page to the K scales of the warp's positions.
  __device__ __forceinline__ static int offset(const AttentionParams& p, LaneOf l) {
    return 2 * p.n_kv_heads * kPage * kWidth + static_cast<int>(blockIdx.x) * kPage * 8 +
           l.warp * kWarpKeys * 8;
  }
  __device__ __forceinline__ void load(const AttentionParams& p, const std::byte* page, int at,
                                       LaneOf l) {
    const std::byte* keys = page + (at + l.near() * 8);
    near = *reinterpret_cast<const uint2*>(keys);
    far = *reinterpret_cast<const uint2*>(keys + 64);
    values =
        *reinterpret_cast<const uint32_t*>(page + (at + p.n_kv_heads * kPage * 8 + l.lane * 4));
  }
  __device__ __forceinline__ static float of(uint2 four, int group) {
    const int at = mutant(Mutant::attention_k_scale) ? group ^ 1 : group;
    const uint32_t pair = at < 2 ? four.x : four.y;
    return at % 2 == 0 ? Fp16Numbers::low(pair) : Fp16Numbers::high(pair);
  }
  // V scales as [64 values][16 positions of a warp][pair of positions r and r + 8]. Those of
  // positions that are not there are zeros: stale bytes may be NaN.
  __device__ __forceinline__ void publish(unsigned char* to, int n_valid, LaneOf l) const {
    const int position = l.lane / 2;
    const int row = position % 4 * 2 + position / 4 % 2;
    const bool stale =
        l.warp * kWarpKeys + position >= n_valid && !mutant(Mutant::attention_stale_values);
    const uint32_t pair = stale ? 0 : values;
    const int x = mutant(Mutant::attention_v_scale) ? 1 : 0;
    auto* out = reinterpret_cast<uint16_t*>(to) + l.warp * kWarpKeys + row * 2 + position / 8;
    out[(l.lane % 2 * 2 + (0 ^ x)) * kPage] = static_cast<uint16_t>(pair);
    out[(l.lane % 2 * 2 + (1 ^ x)) * kPage] = static_cast<uint16_t>(pair >> 16);
  }
};

// Sums of one query row, i = 0 or 1 of a tile's pair: eight values side by side.
template <int kTiles>
__device__ __forceinline__ void store_int8_sums(float* slice, LaneOf l,
                                                const float (&sums)[4][kTiles][4], int tile,
                                                int i) {
  auto* to = reinterpret_cast<float4*>(slice + 8 * l.g);
  to[0] =
      make_float4(sums[0][tile][i], sums[0][tile][2 + i], sums[1][tile][i], sums[1][tile][2 + i]);
  to[1] =
      make_float4(sums[2][tile][i], sums[2][tile][2 + i], sums[3][tile][i], sums[3][tile][2 + i]);
}

}  // namespace lockstep::cuda
