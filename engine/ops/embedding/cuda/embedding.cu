#include <cuda_fp16.h>

#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/embedding/cuda/embedding_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr uint32_t kNanPair = 0x7fc07fc0u;

__device__ __forceinline__ void load_halves(const uint16_t* from, float (&v)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) v[i] = __half2float(__ushort_as_half(from[i]));
}

__global__ void __launch_bounds__(kThreads) gather_rows(const EmbeddingCudaArgs p) {
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVector;
  if (column >= p.n_cols) return;
  uint16_t* out = p.out + blockIdx.x * p.n_cols + column;
  const int32_t id = p.ids[blockIdx.x];
  const int64_t n_rows = p.n_table_rows - (mutant(Mutant::embedding_border) ? 1 : 0);
  const bool inside = id >= 0 && id < n_rows;
  if (!inside) {
    *reinterpret_cast<uint4*>(out) = {kNanPair, kNanPair, kNanPair, kNanPair};
    return;
  }
  const std::byte* row = p.table + id * p.row_bytes;
  const auto* halves = reinterpret_cast<const uint16_t*>(row) + column;
  if (p.codec == Codec::bf16) {
    *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(halves);
    return;
  }
  float v[kVector];
  if (p.codec == Codec::f16) {
    load_halves(halves, v);
  } else {
    load_vector(reinterpret_cast<const float*>(row) + column, v);
  }
  store_vector(v, out);
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void embedding_cuda(const EmbeddingCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::embedding, args.n_cols) && args.row_bytes % 16 == 0);
  LOCKSTEP_KERNEL_CHECK(args.codec == Codec::bf16 || args.codec == Codec::f16 ||
                        args.codec == Codec::f32);
  if (args.n_tokens == 0) return;
  cuda::arm_mutant();
  constexpr int64_t kBlock = int64_t{cuda::kThreads} * cuda::kVector;
  const dim3 blocks(static_cast<unsigned>(args.n_tokens),
                    static_cast<unsigned>((args.n_cols + kBlock - 1) / kBlock));
  cuda::gather_rows<<<blocks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(
      args);
  cuda_check_launch("embedding");
}

}  // namespace lockstep
