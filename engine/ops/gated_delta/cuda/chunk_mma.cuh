// Products of the chunked form in the matrix unit, sm_80 and up. Keys and queries are bfloat16 and
// enter exactly; every other factor is float32 and enters as the sum of three bfloat16 parts (hi,
// mid, lo: 24 bits and more), so that products keep float32's accuracy.
#pragma once

#include "engine/ops/common/cuda/copy_async.cuh"
#include "engine/ops/common/cuda/mma.cuh"
#include "engine/ops/common/cuda/rows.cuh"

namespace lockstep::cuda {

inline constexpr int kParts = 3;
// What only an output needs is good to 2^-16 before it is rounded to bfloat16: hi and mid.
inline constexpr int kWeightParts = 2;

// Rounded to bfloat16, `low` in the lower half.
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// hi, mid and lo of two values.
__device__ __forceinline__ void split_pair(float low, float high, uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    parts[i] = pack_pair(low, high);
    low -= __uint_as_float(parts[i] << 16);
    high -= __uint_as_float(parts[i] & 0xffff0000u);
  }
}

// Parts of eight neighbouring values of a 64 x 64 matrix; each part is such a matrix.
template <int kCount>
__device__ __forceinline__ void store_parts(float (&x)[8], uint16_t* to) {
#pragma unroll
  for (int part = 0; part < kCount; ++part) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = pack_pair(x[2 * i], x[2 * i + 1]);
      x[2 * i] -= __uint_as_float(words[i] << 16);
      x[2 * i + 1] -= __uint_as_float(words[i] & 0xffff0000u);
    }
    *reinterpret_cast<uint4*>(to + part * 64 * 64) = uint4{words[0], words[1], words[2], words[3]};
  }
}

// A 16 x 16 tile as first factor, in parts.
struct PartFragment {
  uint32_t part[kParts][4];

  // From two neighbouring 16 x 8 accumulators.
  __device__ __forceinline__ void split(const float (&left)[4], const float (&right)[4]) {
    const float* source[4] = {left, left + 2, right, right + 2};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t parts[kParts];
      split_pair(source[i][0], source[i][1], parts);
#pragma unroll
      for (int j = 0; j < kParts; ++j) part[j][i] = parts[j];
    }
  }
};

__device__ __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  mma_m16n8k16_bf16(sum, a[0], a[1], a[2], a[3], b0, b1);
}

// Rows of bfloat16 in shared memory, their 16-byte vectors exchanged so that eight rows of one
// column lie in different banks.
template <int kWidth>
struct TileRows {
  uint16_t* rows;

  __device__ __forceinline__ uint16_t* at(int row, int column) const {
    return rows + row * kWidth + ((column / 8) ^ (row & 7)) * 8;
  }
  // Four 8 x 8 matrices whose rows start at (row, column) of lane 8 i + r for matrix i.
  __device__ __forceinline__ void load(int row, int column, uint32_t (&r)[4]) const {
    load_matrices(at(row, column), r);
  }
  __device__ __forceinline__ void load_transposed(int row, int column, uint32_t (&r)[4]) const {
    load_matrices_transposed(at(row, column), r);
  }
};

}  // namespace lockstep::cuda
