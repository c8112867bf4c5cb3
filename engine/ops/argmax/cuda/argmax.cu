#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/argmax/cuda/argmax_cuda.h"
#include "engine/ops/argmax/cuda/slices.cuh"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/row_routes.h"

namespace lockstep::cuda {
namespace {

__global__ void __launch_bounds__(kSliceThreads)
    summarise_slices(const ArgmaxCudaArgs p, SliceSummary* summaries) {
  __shared__ SliceShared shared;
  const SliceValues values =
      load_slice(p.logits + blockIdx.y * p.stride, int64_t{blockIdx.x} * kSlice,
                 static_cast<int>(threadIdx.x), p.n);
  const SliceSummary summary = summarise(values, p.log_sum_exp != nullptr, nullptr, shared);
  if (threadIdx.x == 0) summaries[blockIdx.y * gridDim.x + blockIdx.x] = summary;
}

__global__ void __launch_bounds__(kSliceThreads)
    merge_columns(const ArgmaxCudaArgs p, const SliceSummary* summaries, int n_slices) {
  __shared__ SliceShared shared;
  const SliceSummary* slices = summaries + blockIdx.x * n_slices;
  const ColumnSummary column = merge_slices(slices, n_slices, shared.best);
  if (threadIdx.x == 0) p.best[blockIdx.x] = column.has_nan ? -1 : id_of(column.best);
  if (p.log_sum_exp == nullptr) return;
  const double sum = merge_log_sum(slices, n_slices, column, shared.sum);
  if (threadIdx.x == 0) p.log_sum_exp[blockIdx.x] = sum;
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void argmax_cuda(const ArgmaxCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::vocabulary, args.n) && args.stride % 4 == 0);
  if (args.n_columns == 0) return;
  cuda::arm_mutant();
  const auto native = static_cast<cudaStream_t>(stream.native());
  auto* summaries = reinterpret_cast<cuda::SliceSummary*>(args.workspace);
  const int n_slices = cuda::n_slices_of(args.n);
  const auto n_columns = static_cast<unsigned>(args.n_columns);
  const dim3 blocks(static_cast<unsigned>(n_slices), n_columns);
  cuda::summarise_slices<<<blocks, cuda::kSliceThreads, 0, native>>>(args, summaries);
  cuda::merge_columns<<<n_columns, cuda::kSliceThreads, 0, native>>>(args, summaries, n_slices);
  cuda_check_launch("argmax");
}

}  // namespace lockstep
