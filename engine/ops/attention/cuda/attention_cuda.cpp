#include "engine/ops/attention/cuda/attention_cuda.h"

#include "engine/base/error.h"
#include "engine/ops/attention/cuda/attention_params.h"

namespace lockstep {
namespace {

constexpr float kLog2E = 0x1.715476p+0f;

cuda::AttentionParams params_of(const AttentionCudaArgs& args) {
  const AttentionShape& shape = args.plan.shape;
  cuda::AttentionParams p{};
  p.q = args.q;
  p.q_stride = args.q_stride;
  p.q_head_stride = args.q_head_stride;
  p.gate = args.gate;
  p.gate_stride = args.gate_stride;
  p.gate_head_stride = args.gate_head_stride;
  p.out = args.out;
  p.out_stride = args.out_stride;
  p.pool = args.pool;
  p.page_table = args.page_table;
  p.first_position = args.first_position;
  p.scale_log2 = args.scale * kLog2E;
  p.page_bytes = kv_page_bytes(shape.type, shape.n_kv_heads, kAttentionHeadDim);
  p.segments = args.plan.segments;
  p.n_segments = args.plan.n_segments;
  p.n_tokens = args.n_tokens;
  p.n_kv_heads = shape.n_kv_heads;
  p.group = shape.n_heads / shape.n_kv_heads;
  p.n_multiprocessors = args.n_multiprocessors;
  p.most_block_rows = args.plan.most_block_rows;
  p.values = reinterpret_cast<float*>(args.partials);
  p.statistics = p.values + int64_t{shape.n_heads} * p.n_segments * p.n_tokens * kAttentionHeadDim;
  return p;
}

}  // namespace

void attention_cuda(const AttentionCudaArgs& args, Stream& stream) {
  const AttentionRoute& route = *args.plan.route;
  LOCKSTEP_CHECK(args.n_tokens >= 1 && args.n_multiprocessors >= 1);
  const cuda::AttentionParams p = params_of(args);
  const auto native = static_cast<cudaStream_t>(stream.native());
  const bool sm80 = route.family == KernelFamily::sm80;
  const bool sm90 = route.family == KernelFamily::sm90;
  switch (route.path) {
    case AttentionPath::decode:
      LOCKSTEP_CHECK(args.n_tokens <= kAttentionTokens);
      (sm90   ? cuda::launch_decode_sm90
       : sm80 ? cuda::launch_decode_sm80
              : cuda::launch_decode_sm70)(route.type, p, native);
      cuda::launch_attention_merge(p, native);
      return;
    case AttentionPath::prefill:
      (sm90   ? cuda::launch_prefill_sm90
       : sm80 ? cuda::launch_prefill_sm80
              : cuda::launch_prefill_sm70)(route.type, p, native);
      return;
    case AttentionPath::simple:
      cuda::launch_attention_simple(route.type, p, native);
      return;
  }
}

}  // namespace lockstep
