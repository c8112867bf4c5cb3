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
  if (p.order == ColumnOrder::sm80_int4) {
    quarter = in_block % 16 / 4;
    value = 4 * (in_block / 16) + in_block % 4;
  }
  if (p.order == ColumnOrder::sm90) {
    return int64_t{token} * p.padded_cols + block * p.block_columns + value / 4 * 16 +
           value % 4 / 2 * 8 + quarter * 2 + value % 2;
  }
  return int64_t{token} * p.padded_cols + block * p.block_columns + value / 8 * 32 + quarter * 8 +
         value % 8;
}

__global__ void __launch_bounds__(kThreads) prepare(const PrepareParams p) {
  const int token = blockIdx.x;
  const bool inside = token < p.n_tokens;
  const uint16_t* x = p.x + token * p.x_stride;
  std::byte* group = p.out + token / 8 * p.group_bytes;
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

}  // namespace

void launch_prepare(const PrepareParams& p, cudaStream_t stream) {
  arm_mutant();
  const int blocks = p.order == ColumnOrder::sm70 ? (p.n_tokens + 7) / 8 * 8 : p.n_tokens;
  launch_early(prepare, blocks, kThreads, 0, stream, p, "linear prepare");
}

}  // namespace lockstep::cuda
