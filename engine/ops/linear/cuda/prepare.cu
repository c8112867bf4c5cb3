// Activations as the skinny kernels read them: scaled by a power of two, as binary16, in the order
// of fragments. One block a column; done once for all products that read the same activations.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/early_launch.cuh"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/linear/cuda/launch.h"
#include "engine/ops/linear/cuda/skinny_params.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 512;

// An index into parameters would copy them to the stack.
__device__ __forceinline__ const uint16_t* x_of_part(const PrepareParams& p) {
  return blockIdx.y == 0 ? p.x[0] : p.x[1];
}

__device__ __forceinline__ std::byte* out_of_part(const PrepareParams& p) {
  return blockIdx.y == 0 ? p.out[0] : p.out[1];
}

__device__ __forceinline__ uint32_t largest_magnitude(const PrepareParams& p, const uint16_t* x) {
  __shared__ uint32_t of_warp[kThreads / 32];
  const int n_cols = p.n_cols - (mutant(Mutant::prepare_maximum) ? 1 : 0);
  uint32_t largest = 0;
  for (int k = threadIdx.x; k < n_cols; k += kThreads) largest = max(largest, x[k] & 0x7fffu);
  for (int distance = 16; distance > 0; distance /= 2) {
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int w = 0; w < kThreads / 32; ++w) largest = max(largest, of_warp[w]);
  return largest;
}

// Exponent of the power of two for a row whose largest bfloat16 magnitude has these bits.
__device__ __forceinline__ int row_shift(uint32_t largest) {
  const int exponent = static_cast<int>(largest >> 7) - 127;
  return largest == 0 || exponent == 128 ? 0 : min(14 - exponent, 126);
}

__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

// Of column `token` (0..7) of a group.
__device__ __forceinline__ int64_t place_of(const PrepareParams& p, int token, int k) {
  if (p.order == ColumnOrder::sm70) return (int64_t{k / 8} * 8 + token) * 8 + k % 8;
  const int block = k / p.block_columns;
  const int in_block = k % p.block_columns;
  int quarter = in_block / (p.block_columns / 4);
  int value = in_block % (p.block_columns / 4);
  if (p.order == ColumnOrder::sm80_int4 || p.order == ColumnOrder::sm90_int4) {
    quarter = in_block % 16 / 4;
    value = 4 * (in_block / 16) + in_block % 4;
  }
  if (p.order == ColumnOrder::sm90 || p.order == ColumnOrder::sm90_int4) {
    return int64_t{token} * p.padded_cols + block * p.block_columns + value / 4 * 16 +
           value % 4 / 2 * 8 + quarter * 2 + value % 2;
  }
  return int64_t{token} * p.padded_cols + block * p.block_columns + value / 8 * 32 + quarter * 8 +
         value % 8;
}

__global__ void __launch_bounds__(kThreads) prepare(const PrepareParams p) {
  const int token = blockIdx.x;
  const bool inside = token < p.n_tokens;
  const uint16_t* x = x_of_part(p) + token * p.x_stride;
  std::byte* group = out_of_part(p) + token / 8 * p.group_bytes;
  auto* out = reinterpret_cast<uint16_t*>(group);
  let_next_kernel_start();
  wait_for_earlier_kernels();
  int shift = 0;
  if (inside && !p.keep_bf16) shift = row_shift(largest_magnitude(p, x));
  const float scale = power_of_two(shift);
  for (int k = threadIdx.x; k < p.padded_cols; k += kThreads) {
    uint16_t bits = inside && k < p.n_cols ? x[k] : uint16_t{0};
    if (!p.keep_bf16) {
      const float value = __uint_as_float(static_cast<uint32_t>(bits) << 16) * scale;
      bits = __half_as_ushort(__float2half_rn(value));
    }
    out[place_of(p, token % 8, k)] = bits;
  }
  if (threadIdx.x == 0 && inside) {
    reinterpret_cast<float*>(group + p.factors_offset)[token % 8] = power_of_two(-shift);
  }
}

constexpr int kVector = 8;       // values of one load
constexpr int kMostVectors = 4;  // of a thread

// The largest of both magnitudes in each half of a word.
__device__ __forceinline__ uint32_t larger_halves(uint32_t a, uint32_t b) {
  return __vmaxu2(a & 0x7fff7fffu, b & 0x7fff7fffu);
}

// Of the block's row, kVectors vectors a thread.
template <int kVectors>
__device__ __forceinline__ uint32_t largest_magnitude(const PrepareParams& p,
                                                      const uint4 (&row)[kVectors]) {
  __shared__ uint32_t of_warp[kThreads / 32];
  uint32_t pairs = 0;
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int k = (j * kThreads + static_cast<int>(threadIdx.x)) * kVector;
    const bool cut = mutant(Mutant::prepare_maximum) && k + kVector == p.n_cols;
    pairs = larger_halves(pairs, row[j].x);
    pairs = larger_halves(pairs, row[j].y);
    pairs = larger_halves(pairs, row[j].z);
    pairs = larger_halves(pairs, cut ? row[j].w & 0xffffu : row[j].w);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    pairs = __vmaxu2(pairs, __shfl_xor_sync(0xffffffffu, pairs, distance));
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = pairs;
  __syncthreads();
  for (int w = 0; w < kThreads / 32; ++w) pairs = __vmaxu2(pairs, of_warp[w]);
  return max(pairs & 0xffffu, pairs >> 16);
}

// Two bfloat16 values, scaled, as binary16.
__device__ __forceinline__ uint32_t scaled_pair(uint32_t pair, float scale) {
  const float low = __uint_as_float(pair << 16) * scale;
  const float high = __uint_as_float(pair & 0xffff0000u) * scale;
  return __half_as_ushort(__float2half_rn(low)) |
         static_cast<uint32_t>(__half_as_ushort(__float2half_rn(high))) << 16;
}

// As prepare, for orders that leave eight columns together, each load and each store 16 bytes.
template <int kVectors>
__global__ void __launch_bounds__(kThreads) prepare_vectors(const PrepareParams p) {
  const int token = blockIdx.x;
  const uint16_t* x = x_of_part(p) + token * p.x_stride;
  std::byte* group = out_of_part(p) + token / 8 * p.group_bytes;
  auto* out = reinterpret_cast<uint16_t*>(group);
  let_next_kernel_start();
  wait_for_earlier_kernels();
  uint4 row[kVectors] = {};
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int k = (j * kThreads + static_cast<int>(threadIdx.x)) * kVector;
    if (k < p.n_cols) row[j] = *reinterpret_cast<const uint4*>(x + k);
  }
  const int shift = p.keep_bf16 ? 0 : row_shift(largest_magnitude(p, row));
  const float scale = power_of_two(shift);
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    const int k = (j * kThreads + static_cast<int>(threadIdx.x)) * kVector;
    if (k >= p.padded_cols) continue;
    if (!p.keep_bf16) {
      row[j] = {scaled_pair(row[j].x, scale), scaled_pair(row[j].y, scale),
                scaled_pair(row[j].z, scale), scaled_pair(row[j].w, scale)};
    }
    *reinterpret_cast<uint4*>(out + place_of(p, token % 8, k)) = row[j];
  }
  if (threadIdx.x == 0) {
    reinterpret_cast<float*>(group + p.factors_offset)[token % 8] = power_of_two(-shift);
  }
}

bool has_vectors(const PrepareParams& p) {
  for (int part = 0; part < p.n_parts; ++part) {
    if (reinterpret_cast<uintptr_t>(p.x[part]) % 16 != 0) return false;
  }
  return p.order == ColumnOrder::sm80 && p.block_columns % (4 * kVector) == 0 &&
         p.n_cols % kVector == 0 && p.x_stride % kVector == 0 &&
         p.padded_cols <= kMostVectors * kThreads * kVector;
}

template <int kVectors>
void launch_vectors(const PrepareParams& p, cudaStream_t stream) {
  launch_early(prepare_vectors<kVectors>, dim3(p.n_tokens, p.n_parts), kThreads, 0, stream, p,
               "linear prepare");
}

}  // namespace

void launch_prepare(const PrepareParams& p, cudaStream_t stream) {
  arm_mutant();
  if (has_vectors(p)) {
    switch ((p.padded_cols + kThreads * kVector - 1) / (kThreads * kVector)) {
      case 1:
        return launch_vectors<1>(p, stream);
      case 2:
        return launch_vectors<2>(p, stream);
      case 3:
        return launch_vectors<3>(p, stream);
      default:
        return launch_vectors<4>(p, stream);
    }
  }
  const int blocks = p.order == ColumnOrder::sm70 ? (p.n_tokens + 7) / 8 * 8 : p.n_tokens;
  launch_early(prepare, dim3(blocks, p.n_parts), kThreads, 0, stream, p, "linear prepare");
}

}  // namespace lockstep::cuda
