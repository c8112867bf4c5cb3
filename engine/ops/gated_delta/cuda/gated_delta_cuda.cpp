#include "engine/ops/gated_delta/cuda/gated_delta_cuda.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "engine/ops/gated_delta/cuda/gated_delta_params.h"
#include "engine/ops/gated_delta/gated_delta.h"

namespace lockstep {
namespace {

constexpr std::array kRoutes = {GatedDeltaRoute{KernelFamily::sm70, cuda::kGdnScanBytes},
                                GatedDeltaRoute{KernelFamily::sm80, cuda::kGdnScanSm80Bytes}};
constexpr int64_t kDecayFloats = 5 * kGdnChunk;  // of a chunk and value head, most of all routes

// Of one chunk and value head: X, in float32 or in three bfloat16 parts, and the weights, in
// float32 or in two.
int64_t inverse_bytes(const GatedDeltaCudaPlan& plan) {
  return kGdnChunk * kGdnChunk * (plan.route->family == KernelFamily::sm70 ? 4 : 6);
}
constexpr int64_t kWeightBytes = kGdnChunk * kGdnChunk * 4;

// Whatever the first position, n tokens lie in at most this many chunks.
int64_t most_chunks(int64_t n_tokens) {
  return n_tokens == 0 ? 0 : (n_tokens - 2 + kGdnChunk) / kGdnChunk + 1;
}

cuda::GatedDeltaParams rows_of(const GatedDeltaCudaArgs& args) {
  return {args.q,     args.k,   args.v,          args.row_stride,     args.log_decay,     args.beta,
          args.state, args.out, args.out_stride, args.plan.n_k_heads, args.plan.n_v_heads};
}

}  // namespace

std::span<const GatedDeltaRoute> gated_delta_routes() {
  return kRoutes;
}

GatedDeltaCudaPlan plan_gated_delta_cuda(int n_k_heads, int n_v_heads, int dk, int dv,
                                         int64_t max_tokens, KernelFamily family,
                                         const DeviceFacts& facts) {
  if (dk != kGdnHeadDim || dv != kGdnHeadDim || n_k_heads < 1 || n_v_heads % n_k_heads != 0) {
    fail("gated_delta: no CUDA kernel is registered for {} heads of {} over {} of {}", n_v_heads,
         dv, n_k_heads, dk);
  }
  LOCKSTEP_CHECK(max_tokens >= 0);
  GatedDeltaCudaPlan plan;
  for (const GatedDeltaRoute& route : kRoutes) {
    if (route.family > family || route.block_shared_bytes > facts.block_shared_bytes) continue;
    plan.route = &route;
  }
  if (plan.route == nullptr) {
    fail("gated_delta: a block of this card has {} bytes of shared memory, prefill needs {}",
         facts.block_shared_bytes, kRoutes[0].block_shared_bytes);
  }
  plan.n_k_heads = n_k_heads;
  plan.n_v_heads = n_v_heads;
  plan.max_tokens = max_tokens;
  plan.workspace_bytes = most_chunks(max_tokens) *
                         (n_v_heads * (inverse_bytes(plan) + kWeightBytes + kDecayFloats * 4) +
                          n_k_heads * 2 * kGdnChunk * 4);
  plan.n_multiprocessors = facts.n_multiprocessors;
  return plan;
}

void gated_delta_decode_cuda(const GatedDeltaCudaArgs& args, const GdnSpan* spans, int n_spans,
                             int64_t slot_stride, Stream& stream) {
  if (n_spans == 0) return;
  cuda::launch_gdn_decode({rows_of(args), spans, slot_stride}, n_spans,
                          static_cast<cudaStream_t>(stream.native()));
}

void gated_delta_prefill_cuda(const GatedDeltaCudaArgs& args, int64_t first_position,
                              int64_t n_tokens, std::byte* workspace, Stream& stream) {
  LOCKSTEP_CHECK(n_tokens <= args.plan.max_tokens);
  if (n_tokens == 0) return;
  cuda::GdnChunkParams p{};
  p.rows = rows_of(args);
  p.n_tokens = n_tokens;
  p.first_length = std::min(n_tokens, kGdnChunk - first_position % kGdnChunk);
  p.n_chunks = static_cast<int>(1 + (n_tokens - p.first_length + kGdnChunk - 1) / kGdnChunk);
  const int64_t n_heads = int64_t{p.n_chunks} * args.plan.n_v_heads;
  std::byte* weights = workspace + n_heads * inverse_bytes(args.plan);
  p.inverse = workspace;
  p.weights = weights;
  p.decays = reinterpret_cast<float*>(weights + n_heads * kWeightBytes);
  p.scales = p.decays + n_heads * kDecayFloats;
  const auto native = static_cast<cudaStream_t>(stream.native());
  if (args.plan.route->family == KernelFamily::sm70) {
    cuda::launch_gdn_chunk_prepare(p, native);
    cuda::launch_gdn_chunk_scan(p, native);
  } else {
    cuda::launch_gdn_chunk_prepare_sm80(p, native);
    cuda::launch_gdn_chunk_scan_sm80(p, args.plan.n_multiprocessors, native);
  }
}

}  // namespace lockstep
