#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/kv_write/cuda/kv_store.cuh"
#include "engine/ops/kv_write/cuda/kv_write_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kJobs = kThreads / kLanes;

// Half a warp a vector: keys of all columns, then values.
template <int kSteps>
__global__ void __launch_bounds__(kThreads)
    write_vectors(const KvWriteCudaArgs p, const KvPages pages) {
  constexpr int kWidth = kSteps * kLanes;
  const int64_t job = int64_t{blockIdx.x} * kJobs + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int64_t n_vectors = p.n_tokens * pages.n_kv_heads;
  const bool inside = job < 2 * n_vectors;
  const bool value = job >= n_vectors;
  const int64_t vector = inside ? (value ? job - n_vectors : job) : 0;
  const int64_t token = vector / pages.n_kv_heads;
  const int kv_head = static_cast<int>(vector % pages.n_kv_heads);
  const uint16_t* from =
      (value ? p.v + token * p.v_stride : p.k + token * p.k_stride) + kv_head * kWidth;
  float v[kSteps] = {};
  if (inside) head_load(from, lane, v);
  const KvPlace place = kv_place(pages, value, kv_head, *p.first_position + token, kWidth);
  kv_store(v, lane, pages.type, place, inside);
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void kv_write_cuda(const KvWriteCudaArgs& args, Stream& stream) {
  LOCKSTEP_KERNEL_CHECK(has_kv_route(args.cache.type, args.cache.head_dim));
  if (args.n_tokens == 0) return;
  cuda::arm_mutant();
  const int64_t n_jobs = 2 * args.n_tokens * args.cache.n_kv_heads;
  const auto blocks = static_cast<unsigned>((n_jobs + cuda::kJobs - 1) / cuda::kJobs);
  cuda::with_head_steps(args.cache.head_dim, [&](auto steps) {
    cuda::write_vectors<decltype(steps)::value>
        <<<blocks, cuda::kThreads, 0, static_cast<cudaStream_t>(stream.native())>>>(
            args, cuda::kv_pages(args.cache));
  });
  cuda_check_launch("kv_write");
}

}  // namespace lockstep
