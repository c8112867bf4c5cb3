// Pages of K and V in shared memory for attention_prefill_sm80.cu: rows of 256 numbers of 16 bits,
// chunks of 16 bytes mixed with the row, so that eight rows of one column lie in different banks.
#pragma once

#include "engine/ops/attention/cuda/attention_common.cuh"
#include "engine/ops/attention/cuda/int8_codes.cuh"
#include "engine/ops/attention/cuda/numbers_sm80.cuh"

namespace lockstep::cuda {

inline constexpr int kTileRow = 2 * kWidth;   // bytes of a row of Q, K or V
inline constexpr int kWeightRow = 2 * kPage;  // bytes of a row of P

struct PrefillLane {
  int lane = threadIdx.x % 32;
  int r = threadIdx.x / 64;
  int c = threadIdx.x / 32 % 2;
  int g = threadIdx.x % 32 / 4;
  int t = threadIdx.x % 4;
  __device__ __forceinline__ PrefillLane() {}
};

template <typename Byte>
__device__ __forceinline__ Byte* tile_chunk(Byte* tile, int row, int chunk) {
  return tile + row * kTileRow + (chunk ^ (row % 8)) * 16;
}
template <typename Byte>
__device__ __forceinline__ Byte* weight_chunk(Byte* tile, int row, int chunk) {
  return tile + row * kWeightRow + (chunk ^ (row % 8)) * 16;
}

// Numbers of the cache as they are. A thread copies the chunk `thread % 32` of some rows.
template <typename N, int kThreads>
struct PrefillHalf {
  using Numbers = N;
  static constexpr int kRawBytes = 0;
  static constexpr int kRowsAtOnce = kThreads / 32;

  __device__ __forceinline__ void fetch(const AttentionParams& p, uint32_t page, bool values,
                                        unsigned char* tile, unsigned char*) {
    const std::byte* from = page_keys(p, page, blockIdx.x, kTileRow) +
                            (values ? values_after_keys(p, kTileRow) : 0) + threadIdx.x * 16;
#pragma unroll
    for (int first = 0; first < kPage; first += kRowsAtOnce) {
      const int row = first + static_cast<int>(threadIdx.x) / 32;
      copy_async_16(tile_chunk(tile, row, threadIdx.x % 32), from + first * kTileRow);
    }
    copy_async_commit();
  }
  // Rows from `n_valid` on become zeros: stale bytes may be NaN.
  __device__ __forceinline__ void finish(unsigned char* tile, unsigned char*, int n_valid) {
    copy_async_wait<0>();
    if (n_valid >= kPage || mutant(Mutant::attention_stale_values)) return;
    for (int row = threadIdx.x / 32; row < kPage; row += kRowsAtOnce) {
      if (row < n_valid) continue;
      *reinterpret_cast<uint4*>(tile_chunk(tile, row, threadIdx.x % 32)) = uint4{0, 0, 0, 0};
    }
  }
};

// INT8 codes pass through a buffer in which a thread has chunks of 16 codes of its own, and become
// code * scale rounded to binary16.
template <int kThreads>
struct PrefillInt8 {
  using Numbers = Fp16Numbers;
  static constexpr int kRawBytes = kPage * kWidth;
  static constexpr int kChunks = kPage * kWidth / 16;
  static constexpr int kTurns = kChunks / kThreads;
  uint16_t scales[kTurns];

  __device__ __forceinline__ void fetch(const AttentionParams& p, uint32_t page, bool values,
                                        unsigned char*, unsigned char* raw) {
    const std::byte* from =
        page_keys(p, page, blockIdx.x, kWidth) + (values ? values_after_keys(p, kWidth) : 0);
    const auto* scale = reinterpret_cast<const uint16_t*>(
        page_key_scales(p, page, blockIdx.x) + (values ? value_scales_after_key_scales(p) : 0));
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int chunk = static_cast<int>(threadIdx.x) + i * kThreads;
      copy_async_16(raw + chunk * 16, from + chunk * 16);
      scales[i] = scale[chunk / 4];
    }
    copy_async_commit();
  }
  __device__ __forceinline__ void finish(unsigned char* tile, const unsigned char* raw,
                                         int n_valid) {
    copy_async_wait<0>();
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int chunk = static_cast<int>(threadIdx.x) + i * kThreads;
      const int row = chunk / 16;
      const bool stale = row >= n_valid && !mutant(Mutant::attention_stale_values);
      const uint32_t scale = stale ? 0u : scales[i] * 0x10001u;
      const uint4 codes = *reinterpret_cast<const uint4*>(raw + chunk * 16);
      const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
      uint32_t pairs[8];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        int8_values(words[w], pairs[2 * w], pairs[2 * w + 1]);
        pairs[2 * w] = half2_mul(pairs[2 * w], scale);
        pairs[2 * w + 1] = half2_mul(pairs[2 * w + 1], scale);
      }
      *reinterpret_cast<uint4*>(tile_chunk(tile, row, chunk % 16 * 2)) =
          make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      *reinterpret_cast<uint4*>(tile_chunk(tile, row, chunk % 16 * 2 + 1)) =
          make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
    }
  }
};

}  // namespace lockstep::cuda
