#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/weighted_embedding/cuda/weighted_embedding_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

// WeightedRows as four row numbers and four weights: std::array has no device code.
struct Source {
  int4 rows;
  float4 weights;
};
static_assert(sizeof(Source) == sizeof(WeightedRows));

__global__ void __launch_bounds__(kThreads)
    sum_weighted_rows(const float* table, int64_t width, const Source* sources, uint16_t* to) {
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kVector;
  if (column >= width) return;
  const Source source = sources[blockIdx.x];
  const int rows[4] = {source.rows.x, source.rows.y, source.rows.z, source.rows.w};
  const float weights[4] = {source.weights.x, source.weights.y, source.weights.z, source.weights.w};
  float sum[kVector] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float row[kVector];
    load_vector(table + rows[j] * width + column, row);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float product = weights[j] * row[i];
      const float fused = fmaf(weights[j], row[i], sum[i]);
      sum[i] = j == 0 ? product : mutant(Mutant::weighted_unfused) ? sum[i] + product : fused;
    }
  }
  store_vector(sum, to + blockIdx.x * width + column);
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void weighted_embedding_cuda(const WeightedEmbeddingCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::embedding, args.width));
  if (args.n_tokens == 0) return;
  cuda::arm_mutant();
  constexpr int64_t kBlock = int64_t{cuda::kThreads} * cuda::kVector;
  const dim3 blocks(static_cast<unsigned>(args.n_tokens),
                    static_cast<unsigned>((args.width + kBlock - 1) / kBlock));
  cuda::
      sum_weighted_rows<<<blocks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(
          args.table, args.width, reinterpret_cast<const cuda::Source*>(args.sources), args.out);
  cuda_check_launch("weighted_embedding");
}

}  // namespace lockstep
