#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/early_launch.cuh"
#include "engine/ops/common/cuda/kernel_check.h"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/hadamard/cuda/hadamard_cuda.h"
#include "engine/ops/kv_write/cuda/kv_store.cuh"
#include "engine/ops/prepare_heads/cuda/prepare_heads_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kJobs = kThreads / kLanes;

struct PrepareHeadsParams {
  PrepareHeadsCudaArgs args;
  KvPages pages;
  float factor;
};

// Jobs of one column: its query heads, its keys, its values.
struct Job {
  int64_t token;
  int head;
  bool query;
  bool value;
  bool inside;
};

__device__ __forceinline__ Job job_of(const PrepareHeadsCudaArgs& p, int n_queries, int n_keys) {
  const int per_token = n_queries + 2 * n_keys;
  const int64_t index = int64_t{blockIdx.x} * kJobs + threadIdx.x / kLanes;
  Job job{};
  job.inside = index < p.n_tokens * per_token;
  const int64_t at = job.inside ? index : 0;
  job.token = at / per_token;
  job.head = static_cast<int>(at % per_token);
  job.query = job.head < n_queries;
  if (!job.query) job.head -= n_queries;
  job.value = !job.query && job.head >= n_keys;
  if (job.value) job.head -= n_keys;
  return job;
}

template <int kSteps>
__device__ __forceinline__ const uint16_t* source_of(const PrepareHeadsCudaArgs& p,
                                                     const Job& job) {
  constexpr int kWidth = kSteps * kLanes;
  if (job.query) return p.q + job.token * p.q_stride + job.head * p.q_head_stride;
  if (job.value) return p.v + job.token * p.v_stride + job.head * kWidth;
  return p.k + job.token * p.k_stride + job.head * kWidth;
}

// Norm, rotation and transform, each rounded.
template <int kSteps>
__device__ __forceinline__ void prepare(const PrepareHeadsCudaArgs& p, const Job& job, int lane,
                                        float factor, float (&v)[kSteps]) {
  head_norm(v, job.query ? p.q_norm : p.k_norm, lane, p.eps, p.weight_offset);
  head_round(v);
  const auto* angles = reinterpret_cast<const float2*>(p.angles) + job.token * p.n_pairs;
  head_rotate(v, angles, lane, p.n_pairs);
  head_round(v);
  if (!p.rotate) return;
  head_hadamard(v, lane, factor);
  head_round(v);
}

template <int kSteps>
__global__ void __launch_bounds__(kThreads) prepare_head(const PrepareHeadsParams params) {
  constexpr int kWidth = kSteps * kLanes;
  const PrepareHeadsCudaArgs& p = params.args;
  const KvPages& pages = params.pages;
  const int n_queries = p.q != nullptr ? p.n_heads : 0;
  const int n_keys = p.k != nullptr ? pages.n_kv_heads : 0;
  const Job job = job_of(p, n_queries, n_keys);
  const int lane = threadIdx.x % kLanes;
  // The way to a page takes three loads after another: it starts first.
  KvPlace place{};
  if (n_keys > 0) {
    const int kv_head = job.query ? 0 : job.head;
    place = kv_place(pages, job.value, kv_head, *p.first_position + job.token, kWidth);
  }
  wait_for_earlier_kernels();
  let_next_kernel_start();
  float v[kSteps] = {};
  if (job.inside) head_load(source_of<kSteps>(p, job), lane, v);
  // Values are left as they are. Both halves of a warp take part in the exchanges.
  const bool changes = !job.value || mutant(Mutant::prepare_value_changed);
  if (__any_sync(0xffffffffu, changes ? 1 : 0) != 0) {
    float plain[kSteps];
#pragma unroll
    for (int j = 0; j < kSteps; ++j) plain[j] = v[j];
    prepare(p, job, lane, params.factor, v);
#pragma unroll
    for (int j = 0; j < kSteps; ++j) v[j] = changes ? v[j] : plain[j];
  }
  if (job.query && job.inside) {
    head_store(v, p.q_out + (job.token * p.n_heads + job.head) * kWidth, lane);
  }
  if (n_keys > 0) kv_store(v, lane, pages.type, place, job.inside && !job.query);
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void prepare_heads_cuda(const PrepareHeadsCudaArgs& args, Stream& stream) {
  const int width = args.cache.head_dim;
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::head, width));
  LOCKSTEP_KERNEL_CHECK(args.k == nullptr || has_kv_route(args.cache.type, width));
  LOCKSTEP_KERNEL_CHECK(has_row_route(RowOp::rotation, args.n_pairs) && 2 * args.n_pairs <= width);
  const int n_keys = args.k != nullptr ? args.cache.n_kv_heads : 0;
  const int64_t n_jobs = args.n_tokens * ((args.q != nullptr ? args.n_heads : 0) + 2 * n_keys);
  if (n_jobs == 0) return;
  cuda::arm_mutant();
  const auto blocks = static_cast<unsigned>((n_jobs + cuda::kJobs - 1) / cuda::kJobs);
  cuda::with_head_steps(width, [&](auto steps) {
    const cuda::PrepareHeadsParams params{args, cuda::kv_pages(args.cache), hadamard_factor(width)};
    cuda::launch_early(cuda::prepare_head<decltype(steps)::value>, blocks, cuda::kThreads, 0,
                       static_cast<cudaStream_t>(stream.native()), params, "prepare_heads");
  });
}

}  // namespace lockstep
