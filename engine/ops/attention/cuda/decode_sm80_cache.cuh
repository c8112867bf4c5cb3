// K and V of one step of attention_decode_sm80.cu: how a warp copies them and how they meet the
// matrix instruction. Lane (g, t) = (lane / 4, lane mod 4). A warp copies what it alone reads: all
// values of its 16 positions of K, and its 64 values of all 64 positions of V.
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
inline constexpr int kWeightStride = 160;                     // bytes of a row of P
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

struct Int8Cache {
  using Numbers = Fp16Numbers;
  static constexpr int kRowBytes = kWidth;
  static constexpr int kQueryStride = 528;  // bytes of a query row: 256 values, a shift of banks
  static constexpr bool kScales = true;

  __device__ __forceinline__ static int value_mix(int row, int) { return row / 2 % 2 * 2; }

  // Scales of the next step, loaded early: of K for rows g and g + 8, of V for half a position.
  struct Scales {
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

  // [tile][row g: query rows 2 t, 2 t + 1; row g + 8: the same], without factors of query rows.
  template <int kTiles>
  __device__ __forceinline__ static void score(const unsigned char* keys,
                                               const unsigned char* queries, const Scales& scales,
                                               LaneOf l, float (&scores)[kTiles][4]) {
    const unsigned char* near = keys + l.near() * kRowBytes;
    const int mix = l.g % 2 * 4;
    const unsigned char* rows = queries + l.g * kQueryStride + l.t * 32;
#pragma unroll(kTiles <= 2 ? 2 : 1)
    for (int c = 0; c < 4; ++c) {
      const int chunk = ((4 * c + l.t) ^ mix) * 16;
      const uint4 gk = *reinterpret_cast<const uint4*>(near + chunk);
      const uint4 hk = *reinterpret_cast<const uint4*>(near + 8 * kRowBytes + chunk);
      float part[kTiles][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t a[8];
        int8_values(i == 0 ? gk.x : gk.z, a[0], a[2]);
        int8_values(i == 0 ? hk.x : hk.z, a[1], a[3]);
        int8_values(i == 0 ? gk.y : gk.w, a[4], a[6]);
        int8_values(i == 0 ? hk.y : hk.w, a[5], a[7]);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint4 q =
              *reinterpret_cast<const uint4*>(rows + tile * 8 * kQueryStride + c * 128 + i * 16);
          if (i == 0) {
            mma_m16n8k16_f16_first(part[tile], a[0], a[1], a[2], a[3], q.x, q.y);
          } else {
            mma_m16n8k16_f16(part[tile], a[0], a[1], a[2], a[3], q.x, q.y);
          }
          mma_m16n8k16_f16(part[tile], a[4], a[5], a[6], a[7], q.z, q.w);
        }
      }
      const float g_scale = Scales::of(scales.near, c);
      const float h_scale = Scales::of(scales.far, c);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        scores[tile][0] = fmaf(part[tile][0], g_scale, scores[tile][0]);
        scores[tile][1] = fmaf(part[tile][1], g_scale, scores[tile][1]);
        scores[tile][2] = fmaf(part[tile][2], h_scale, scores[tile][2]);
        scores[tile][3] = fmaf(part[tile][3], h_scale, scores[tile][3]);
      }
    }
  }

  // V^T of 16 positions times P^T. weights[tile]: words (positions r, r + 8) of r = 2 t, 2 t + 1.
  template <int kTiles>
  __device__ __forceinline__ static void add(const unsigned char* values,
                                             const unsigned char* scales, int block, LaneOf l,
                                             const uint2 (&weights)[kTiles],
                                             float (&sums)[4][kTiles][4]) {
    const unsigned char* row = values + (block * kWarpKeys + l.t) * kSlice +
                               ((l.g / 2) ^ (l.t / 2 * 2)) * 16 + l.g % 2 * 8;
    const uint2 scale = *reinterpret_cast<const uint2*>(scales + l.warp * (kPage * 2) +
                                                        block * (kWarpKeys * 2) + l.t * 8);
    const uint2 v0 = *reinterpret_cast<const uint2*>(row);
    const uint2 v8 = *reinterpret_cast<const uint2*>(row + 8 * kSlice);
    const uint2 v4 = *reinterpret_cast<const uint2*>(row + 4 * kSlice);
    const uint2 v12 = *reinterpret_cast<const uint2*>(row + 12 * kSlice);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t a[4];
      uint32_t b[4];
      value_pairs(half == 0 ? v0.x : v0.y, half == 0 ? v8.x : v8.y, scale.x, a);
      value_pairs(half == 0 ? v4.x : v4.y, half == 0 ? v12.x : v12.y, scale.y, b);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        mma_m16n8k16_f16(sums[2 * half][tile], a[0], a[1], b[0], b[1], weights[tile].x,
                         weights[tile].y);
        mma_m16n8k16_f16(sums[2 * half + 1][tile], a[2], a[3], b[2], b[3], weights[tile].x,
                         weights[tile].y);
      }
    }
  }
  // Sums of one query row, i = 0 or 1 of a tile's pair: eight values side by side.
  template <int kTiles>
  __device__ __forceinline__ static void store(float* slice, LaneOf l,
                                               const float (&sums)[4][kTiles][4], int tile, int i) {
    auto* to = reinterpret_cast<float4*>(slice + 8 * l.g);
    to[0] =
        make_float4(sums[0][tile][i], sums[0][tile][2 + i], sums[1][tile][i], sums[1][tile][2 + i]);
    to[1] =
        make_float4(sums[2][tile][i], sums[2][tile][2 + i], sums[3][tile][i], sums[3][tile][2 + i]);
  }
  __device__ __forceinline__ static void clear_tail(unsigned char*, int, LaneOf) {}
};

template <typename N>
struct HalfCache {
  using Numbers = N;
  static constexpr int kRowBytes = 2 * kWidth;
  static constexpr int kQueryStride = 576;
  static constexpr bool kScales = false;

  __device__ __forceinline__ static int value_mix(int row, int first) {
    return row % 4 + (first / 8 % 2) * 4;
  }

  struct Scales {
    __device__ __forceinline__ static int offset(const AttentionParams&, LaneOf) { return 0; }
    __device__ __forceinline__ void load(const AttentionParams&, const std::byte*, int, LaneOf) {}
    __device__ __forceinline__ void publish(unsigned char*, int, LaneOf) const {}
  };

  template <int kTiles>
  __device__ __forceinline__ static void score(const unsigned char* keys,
                                               const unsigned char* queries, const Scales&,
                                               LaneOf l, float (&scores)[kTiles][4]) {
    const unsigned char* near = keys + l.near() * kRowBytes;
    const int mix = l.g % 2 * 4;
    const unsigned char* rows = queries + l.g * kQueryStride + l.t * 16;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int chunk = ((4 * c + l.t) ^ mix) * 16;
      const uint4 gk = *reinterpret_cast<const uint4*>(near + chunk);
      const uint4 hk = *reinterpret_cast<const uint4*>(near + 8 * kRowBytes + chunk);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const uint4 q = *reinterpret_cast<const uint4*>(rows + tile * 8 * kQueryStride + c * 64);
        N::mma(scores[tile], gk.x, hk.x, gk.y, hk.y, q.x, q.y);
        N::mma(scores[tile], gk.z, hk.z, gk.w, hk.w, q.z, q.w);
      }
    }
  }

  template <int kTiles>
  __device__ __forceinline__ static void add(const unsigned char* values, const unsigned char*,
                                             int block, LaneOf l, const uint2 (&weights)[kTiles],
                                             float (&sums)[4][kTiles][4]) {
    // Row `lane % 8` of matrix `lane / 8`: matrices 0 and 1 hold the positions of words 2 t, 2 and
    // 3 those of words 2 t + 1; odd ones the upper eight of 16 values.
    const int i = l.lane % 8;
    const int matrix = l.lane / 8;
    const int position = i / 2 + 8 * (i % 2) + 4 * (matrix / 2);
    const int mix = (i / 2) | (i % 2 * 4);
    const unsigned char* row = values + (block * kWarpKeys + position) * (2 * kSlice);
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      uint32_t a[4];
      load_matrices_transposed(row + (((2 * m) | (matrix % 2)) ^ mix) * 16, a);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        N::mma(sums[m][tile], a[0], a[1], a[2], a[3], weights[tile].x, weights[tile].y);
      }
    }
  }
  // Sums of one query row, i = 0 or 1 of a tile's pair: eight lanes have neighbours.
  template <int kTiles>
  __device__ __forceinline__ static void store(float* slice, LaneOf l,
                                               const float (&sums)[4][kTiles][4], int tile, int i) {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      slice[16 * m + l.g] = sums[m][tile][i];
      slice[16 * m + 8 + l.g] = sums[m][tile][2 + i];
    }
  }
  // Zeros for the positions from `n_valid` on: stale bytes may be NaN.
  __device__ __forceinline__ static void clear_tail(unsigned char* values, int n_valid, LaneOf l) {
    if (mutant(Mutant::attention_stale_values)) return;
    for (int i = n_valid * (2 * kSlice / 16) + l.lane; i < kPage * (2 * kSlice / 16); i += 32) {
      *reinterpret_cast<uint4*>(values + i * 16) = uint4{0, 0, 0, 0};
    }
  }
};

}  // namespace lockstep::cuda
