// K and V of attention_sm70.cu: loads into registers and what the matrix instruction gets. Volta
// has no copies past the registers, no ldmatrix and no arithmetic on bfloat16.
//
// A step is 128 positions, 32 for each of four warps. Lane L of warp w scores position 32 w + L: A
// of mma.m8n8k4 by rows, four groups of eight positions side by side. For the values lane L takes
// positions 32 (L mod 4) + j, j = 0..31, so that a product of four positions holds one of each
// warp: A by columns, four values of one position.
#pragma once

#include <type_traits>

#include "engine/ops/attention/cuda/attention_common.cuh"
#include "engine/ops/attention/cuda/int8_codes.cuh"
#include "engine/ops/common/cuda/mma.cuh"

namespace lockstep::cuda {

inline constexpr int kSm70Warps = 4;
inline constexpr int kSm70Threads = 32 * kSm70Warps;
inline constexpr int kSm70Step = 128;
inline constexpr int kSm70Slice = 64;          // values of V that a warp adds up
inline constexpr int kSm70QueryStride = 528;   // bytes of a query row: 256 values, a shift of banks
inline constexpr int kSm70WeightStride = 272;  // bytes of a row of P

struct Sm70Lane {
  int warp = threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  // Row of the eight query rows that this lane multiplies.
  __device__ __forceinline__ int query_row() const { return lane % 4 + lane / 16 * 4; }
  // First of the two positions (the other is 2 further) whose scores this lane gets.
  __device__ __forceinline__ int near() const { return lane & ~2; }
  // Row of a tile that element i of an accumulator belongs to.
  __device__ __forceinline__ int row_of(int i) const { return (i & 4) + (lane & 2) + (i & 1); }
  // First of the eight values of the warp's 64 that this lane multiplies.
  __device__ __forceinline__ int value() const { return (lane % 16 / 4 * 2 + lane / 16) * 8; }
  // Value of the warp's 64 that element i of accumulator b (four values of each eight) belongs to.
  __device__ __forceinline__ int value_of(int b, int i) const {
    return value() + 4 * b + (lane & 1) + (i & 2);
  }
  __device__ __forceinline__ Sm70Lane() {}
};

__device__ __forceinline__ uint4 load_cached(const std::byte* p) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ uint2 load_cached_8(const std::byte* p) {
  uint2 v;
  asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

// Where a step's vectors lie: positions beyond the last one read that one, which is valid memory
// and finite, and weigh nothing.
struct Sm70Step {
  const std::byte* key;        // of position 32 w + L
  const std::byte* value;      // of position 32 (L mod 4), this lane's values
  const std::byte* scales[2];  // INT8: K scales of positions near, near + 2
  const std::byte* value_scales[4];
  int limit;  // value j is at min(j, limit)

  template <int kRow>
  __device__ __forceinline__ Sm70Step(const AttentionParams& p, int first, int end, Sm70Lane l,
                                      std::integral_constant<int, kRow>) {
    const int kv_head = blockIdx.x;
    const int own = min(first + 32 * l.warp + l.lane, end - 1);
    key = page_keys(p, page_at(p, own / kPage), kv_head, kRow) + own % kPage * kRow;
    const int from = min(first + 32 * (l.lane % 4), end - 1);
    limit = min(end - 1 - from, 31);
    value = page_keys(p, page_at(p, from / kPage), kv_head, kRow) + values_after_keys(p, kRow) +
            from % kPage * kRow + (l.warp * kSm70Slice + l.value()) * (kRow / kWidth);
    if constexpr (kRow == kWidth) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int position = min(first + 32 * l.warp + l.near() + 2 * i, end - 1);
        scales[i] =
            page_key_scales(p, page_at(p, position / kPage), kv_head) + position % kPage * 8;
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = min(first + 32 * i + l.lane, end - 1);
        value_scales[i] = page_key_scales(p, page_at(p, position / kPage), kv_head) +
                          value_scales_after_key_scales(p) + position % kPage * 8 + l.warp * 2;
      }
    }
  }
};

__device__ __forceinline__ float half_value(uint32_t pair, int which) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(which == 0 ? pair : pair >> 16)));
}

// Four values of K, as pairs, against four values of every query row.
template <int kTiles>
__device__ __forceinline__ void score_four(float (&acc)[kTiles][8], uint32_t a0, uint32_t a1,
                                           const unsigned char* queries) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const uint2 q = *reinterpret_cast<const uint2*>(queries + tile * 8 * kSm70QueryStride);
    mma_m8n8k4_f16(acc[tile], a0, a1, q.x, q.y);
  }
}

struct Sm70Int8 {
  static constexpr int kRow = kWidth;
  static constexpr int kKeyBatches = 4;    // of 64 values: one scale each
  static constexpr int kValueBatches = 4;  // of eight positions j
  using Keys = uint4[4];
  using Values = uint2[8];
  static constexpr int kBatchPositions = 8;

  struct Scales {
    uint2 keys[2];
    uint16_t values[4];
    __device__ __forceinline__ void load(const Sm70Step& step) {
      keys[0] = load_cached_8(step.scales[0]);
      keys[1] = load_cached_8(step.scales[1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        values[i] = *reinterpret_cast<const uint16_t*>(step.value_scales[i]);
      }
    }
    // V scales of this warp's 64 values: [32 (L mod 4)][j].
    __device__ __forceinline__ void publish(uint16_t* to, Sm70Lane l) const {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[32 * i + l.lane] = values[i];
    }
  };

  __device__ __forceinline__ static void load_keys(const Sm70Step& step, int batch, Keys& to) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = load_cached(step.key + batch * 64 + i * 16);
  }
  __device__ __forceinline__ static void load_values(const Sm70Step& step, int batch, Values& to) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to[i] = load_cached_8(step.value + min(batch * 8 + i, step.limit) * kRow);
    }
  }
  template <int kTiles>
  __device__ __forceinline__ static void score(const Keys& keys, int batch, const Scales& scales,
                                               const unsigned char* queries,
                                               float (&scores)[kTiles][8]) {
    float part[kTiles][8] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t words[4] = {keys[i].x, keys[i].y, keys[i].z, keys[i].w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        uint32_t low;
        uint32_t high;
        int8_values(words[w], low, high);
        score_four(part, low, high, queries + batch * 128 + i * 32 + w * 8);
      }
    }
    const int at = mutant(Mutant::attention_sm70_k_scale) ? batch ^ 1 : batch;
    const float near = half_value(at < 2 ? scales.keys[0].x : scales.keys[0].y, at % 2);
    const float far = half_value(at < 2 ? scales.keys[1].x : scales.keys[1].y, at % 2);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        scores[tile][i] = fmaf(part[tile][i], (i & 2) == 0 ? near : far, scores[tile][i]);
      }
    }
  }
  // Pairs of values 4 b..4 b + 3 of position j.
  struct Batch {
    uint4 scales;  // of eight positions
    __device__ __forceinline__ Batch(const uint16_t* published, int batch, Sm70Lane l)
        : scales(*reinterpret_cast<const uint4*>(published + 32 * (l.lane % 4) + batch * 8)) {}
    __device__ __forceinline__ void pairs(const Values& values, int i, int b, uint32_t& low,
                                          uint32_t& high) const {
      const uint32_t pair = i < 2 ? scales.x : i < 4 ? scales.y : i < 6 ? scales.z : scales.w;
      const uint32_t scale = __byte_perm(pair, 0, i % 2 == 0 ? 0x1010 : 0x3232);
      int8_values(b == 0 ? values[i].x : values[i].y, low, high);
      low = half2_mul(low, scale);
      high = half2_mul(high, scale);
    }
  };
};

// binary16, and bfloat16 that becomes binary16 on its way.
template <bool kBf16>
struct Sm70Half {
  static constexpr int kRow = 2 * kWidth;
  static constexpr int kKeyBatches = 8;    // of 32 values
  static constexpr int kValueBatches = 8;  // of four positions j
  static constexpr int kBatchPositions = 4;
  using Keys = uint4[4];
  using Values = uint4[4];

  struct Scales {
    __device__ __forceinline__ void load(const Sm70Step&) {}
    __device__ __forceinline__ void publish(uint16_t*, Sm70Lane) const {}
  };

  __device__ __forceinline__ static uint32_t pair(uint32_t word) {
    if constexpr (!kBf16) return word;
    const __half2 two =
        __floats2half2_rn(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
    return *reinterpret_cast<const uint32_t*>(&two);
  }
  __device__ __forceinline__ static void load_keys(const Sm70Step& step, int batch, Keys& to) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = load_cached(step.key + batch * 64 + i * 16);
  }
  __device__ __forceinline__ static void load_values(const Sm70Step& step, int batch, Values& to) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[i] = load_cached(step.value + min(batch * 4 + i, step.limit) * kRow);
    }
  }
  template <int kTiles>
  __device__ __forceinline__ static void score(const Keys& keys, int batch, const Scales&,
                                               const unsigned char* queries,
                                               float (&scores)[kTiles][8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned char* q = queries + batch * 64 + i * 16;
      score_four(scores, pair(keys[i].x), pair(keys[i].y), q);
      score_four(scores, pair(keys[i].z), pair(keys[i].w), q + 8);
    }
  }
  struct Batch {
    __device__ __forceinline__ Batch(const uint16_t*, int, Sm70Lane) {}
    __device__ __forceinline__ void pairs(const Values& values, int i, int b, uint32_t& low,
                                          uint32_t& high) const {
      low = pair(b == 0 ? values[i].x : values[i].z);
      high = pair(b == 0 ? values[i].y : values[i].w);
    }
  };
};

}  // namespace lockstep::cuda
