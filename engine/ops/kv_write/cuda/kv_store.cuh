// One head vector in half a warp (head_lanes.cuh) to its place in the cache, as ops/kv_write
// stores it.
#pragma once

#include <cuda_fp16.h>

#include "engine/ops/attention/kv_view.h"
#include "engine/ops/common/cuda/head_lanes.cuh"

namespace lockstep::cuda {

struct KvPlace {
  std::byte* codes;
  uint16_t* scales;  // int8 only
};

struct KvPages {
  std::byte* pool;
  const uint32_t* page_table;
  int64_t page_bytes;
  int n_kv_heads;
  KvType type;
};

inline KvPages kv_pages(const KvView& cache) {
  return {cache.pool, cache.page_table, kv_page_bytes(cache.type, cache.n_kv_heads, cache.head_dim),
          cache.n_kv_heads, cache.type};
}

// kv_view.h says how a page is laid out.
__device__ __forceinline__ KvPlace kv_place(const KvPages& pages, bool value, int kv_head,
                                            int64_t position, int head_dim) {
  const int64_t entry = position / kPageTokens;
  const int64_t neighbour = mutant(Mutant::kv_page) && entry == 1 ? 0 : entry;
  std::byte* page = pages.pool + int64_t{pages.page_table[neighbour]} * pages.page_bytes;
  const int64_t vectors = int64_t{pages.n_kv_heads} * kPageTokens;
  const int64_t vector =
      (value ? vectors : 0) + int64_t{kv_head} * kPageTokens + position % kPageTokens;
  const int element = pages.type == KvType::int8 ? 1 : 2;
  auto* scales = reinterpret_cast<uint16_t*>(page + 2 * vectors * head_dim);
  return {page + vector * head_dim * element, scales + vector * (head_dim / kInt8ScaleGroup)};
}

// NaN stays, whatever else is brought to the largest binary16.
__device__ __forceinline__ uint16_t f16_saturated(float value) {
  if (value != value) return static_cast<uint16_t>(__float_as_uint(value) >> 31 << 15 | 0x7e00u);
  if (mutant(Mutant::kv_overflow)) return __half_as_ushort(__float2half_rn(value));
  return __half_as_ushort(__float2half_rn(fminf(fmaxf(value, -65504.0f), 65504.0f)));
}

// Four values a lane: the 64 that share a scale.
__device__ __forceinline__ void store_int8_group(const float* v, int lane, const KvPlace& place,
                                                 int group, bool inside) {
  // Magnitudes as integers order like floats, and a NaN comes out on top.
  uint32_t largest = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) largest = max(largest, __float_as_uint(v[j]) & 0x7fffffffu);
#pragma unroll
  for (int distance = mutant(Mutant::kv_scale_group) ? 4 : 8; distance > 0; distance /= 2) {
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  const bool has_nan = largest > 0x7f800000u;
  const uint16_t bits =
      has_nan ? uint16_t{0x7e00} : f16_saturated(__fdiv_rn(__uint_as_float(largest), 127.0f));
  const float scale = __half2float(__ushort_as_half(bits));
  if (!inside) return;
  auto* codes = reinterpret_cast<int8_t*>(place.codes) + group * kInt8ScaleGroup;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float clamped = fminf(fmaxf(__fdiv_rn(v[j], scale), -127.0f), 127.0f);
    const float whole = mutant(Mutant::kv_truncated) ? truncf(clamped) : rintf(clamped);
    const bool zero = has_nan || scale == 0.0f;
    codes[lane + j * kLanes] = zero ? int8_t{0} : static_cast<int8_t>(whole);
  }
  if (lane == 0) place.scales[group] = bits;
}

// `inside` guards the stores: a half warp without a vector takes part in the exchanges.
template <int kSteps>
__device__ __forceinline__ void kv_store(const float (&v)[kSteps], int lane, KvType type,
                                         const KvPlace& place, bool inside) {
  if (type == KvType::int8) {
#pragma unroll
    for (int group = 0; group < kSteps / 4; ++group) {
      store_int8_group(v + 4 * group, lane, place, group, inside);
    }
    return;
  }
  if (!inside) return;
  auto* codes = reinterpret_cast<uint16_t*>(place.codes);
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    codes[lane + j * kLanes] =
        type == KvType::bf16 ? static_cast<uint16_t>(bf16_bits_exact(v[j])) : f16_saturated(v[j]);
  }
}

}  // namespace lockstep::cuda
