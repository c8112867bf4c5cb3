// A thread has one gate of one row. Decode: a block has all rows of a span for 32 heads, reads its
// part of the record before it writes it.
#include "engine/device/cuda/cuda_check.h"
#include "engine/ops/common/cuda/early_launch.cuh"
#include "engine/ops/common/cuda/mutant.cuh"
#include "engine/ops/common/cuda/rows.cuh"
#include "engine/ops/gdn_gates/cuda/gdn_gates_cuda.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kHeadsOfBlock = 32;
constexpr double kSoftplusLinear = 20.0;

struct Gates {
  float log_decay;
  float beta;
};

// What a head's gates have from the weights.
struct HeadWeights {
  double minus_rate;  // -exp(a_log)
  double dt_bias;

  __device__ __forceinline__ HeadWeights(const GdnGatesCudaArgs& p, int head)
      : minus_rate(-exp(double{p.a_log[head]})),
        dt_bias(mutant(Mutant::gates_dt_bias) ? 0.0 : double{p.dt_bias[head]}) {}
};

__device__ __forceinline__ Gates gates_of(const GdnGatesCudaArgs& p, const HeadWeights& weights,
                                          int64_t column, int head) {
  const int64_t at = column * p.stride + head;
  const double x = double{bf16_value(p.a[at])} + weights.dt_bias;
  const double step = x != x || x > kSoftplusLinear ? x : log1p(exp(x));
  const double strength = 1.0 / (1.0 + exp(-double{bf16_value(p.b[at])}));
  return {static_cast<float>(weights.minus_rate * step), static_cast<float>(strength)};
}

__global__ void __launch_bounds__(kThreads) gdn_gates_prefill(const GdnGatesCudaArgs p) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.n_tokens * p.n_heads) return;
  const auto head = static_cast<int>(i % p.n_heads);
  const Gates gates = gates_of(p, HeadWeights(p, head), i / p.n_heads, head);
  p.log_decay[i] = gates.log_decay;
  p.beta[i] = gates.beta;
}

__global__ void __launch_bounds__(kHeadsOfBlock* kGdnRoundRows)
    gdn_gates_decode(const GdnGatesCudaArgs p) {
  const int head = blockIdx.x * kHeadsOfBlock + threadIdx.x % kHeadsOfBlock;
  const int row = threadIdx.x / kHeadsOfBlock;
  const GdnSpan span = p.spans[blockIdx.y];
  const bool inside = head < p.n_heads && row < span.n_replayed + span.n_new;
  float* record = p.record + span.slot * p.slot_stride + head;
  constexpr int kBeta = kGdnRoundColumns;
  Gates gates{};
  const HeadWeights weights(p, min(head, p.n_heads - 1));
  if (inside && row < span.n_replayed) {
    gates = {record[int64_t{row} * p.n_heads], record[int64_t{kBeta + row} * p.n_heads]};
  }
  wait_for_earlier_kernels();
  let_next_kernel_start();
  if (inside && row >= span.n_replayed) {
    gates = gates_of(p, weights, span.first_column + row - span.n_replayed, head);
  }
  __syncthreads();
  if (!inside) return;
  const int64_t at = (int64_t{blockIdx.y} * kGdnRoundRows + row) * p.n_heads + head;
  p.log_decay[at] = gates.log_decay;
  p.beta[at] = gates.beta;
  const int kept = row - span.n_committed - (mutant(Mutant::gates_record_row) ? 1 : 0);
  if (kept < 0) return;
  record[int64_t{kept} * p.n_heads] = gates.log_decay;
  record[int64_t{kBeta + kept} * p.n_heads] = gates.beta;
}

}  // namespace
}  // namespace lockstep::cuda

namespace lockstep {

void gdn_gates_prefill_cuda(const GdnGatesCudaArgs& args, Stream& stream) {
  if (args.n_tokens == 0) return;
  cuda::arm_mutant();
  const int64_t blocks = (args.n_tokens * args.n_heads + cuda::kThreads - 1) / cuda::kThreads;
  cuda::gdn_gates_prefill<<<static_cast<unsigned>(blocks), cuda::kThreads, 0,
                            static_cast<cudaStream_t>(stream.native())>>>(args);
  cuda_check_launch("gdn_gates_prefill");
}

void gdn_gates_decode_cuda(const GdnGatesCudaArgs& args, Stream& stream) {
  if (args.n_spans == 0) return;
  cuda::arm_mutant();
  const dim3 blocks((args.n_heads + cuda::kHeadsOfBlock - 1) / cuda::kHeadsOfBlock, args.n_spans);
  cuda::launch_early(cuda::gdn_gates_decode, blocks, cuda::kHeadsOfBlock * kGdnRoundRows, 0,
                     static_cast<cudaStream_t>(stream.native()), args, "gdn_gates_decode");
}

}  // namespace lockstep
