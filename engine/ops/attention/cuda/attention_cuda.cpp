#include "engine/ops/attention/cuda/attention_cuda.h"

#include "engine/base/error.h"
#include "engine/ops/attention/cuda/attention_params.h"

namespace lockstep {
namespace {

constexpr float kLog2E = 0x1.715476p+0f;

}  // namespace

AttentionCudaPlan plan_attention_cuda(int n_heads, int n_kv_heads, int head_dim, KvType type,
                                      int64_t max_positions, int segment, int arch) {
  if (head_dim != kAttentionHeadDim || n_kv_heads < 1 || n_heads % n_kv_heads != 0 ||
      n_heads / n_kv_heads > kAttentionGroup) {
    fail("attention: no CUDA kernel is registered for {} heads over {} of {} values", n_heads,
         n_kv_heads, head_dim);
  }
  if (type != KvType::int8 || arch < 80) {
    fail(
        "attention: no CUDA kernel is registered for this KV cache type on sm_{}: int8 from sm_80 "
        "on",
        arch);
  }
  LOCKSTEP_CHECK(segment > 0 && segment % kAttentionStep == 0 && max_positions > 0);
  AttentionCudaPlan plan{n_heads, n_kv_heads, type, max_positions, segment, 0};
  const int64_t n_segments = (max_positions + segment - 1) / segment;
  const int64_t rows = int64_t{n_kv_heads} * n_segments * (n_heads / n_kv_heads) * kAttentionTokens;
  plan.partial_bytes = rows * (kAttentionHeadDim + 2) * 4;
  return plan;
}

void attention_cuda(const AttentionCudaArgs& args, Stream& stream) {
  const AttentionCudaPlan& plan = args.plan;
  LOCKSTEP_CHECK(args.n_tokens >= 1 && args.n_tokens <= kAttentionTokens);
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
  p.page_bytes = kv_page_bytes(plan.type, plan.n_kv_heads, kAttentionHeadDim);
  p.n_tokens = args.n_tokens;
  p.n_kv_heads = plan.n_kv_heads;
  p.group = plan.n_heads / plan.n_kv_heads;
  p.segment = plan.segment;
  p.n_segments = static_cast<int>((plan.max_positions + plan.segment - 1) / plan.segment);
  p.values = reinterpret_cast<float*>(args.partials);
  p.statistics =
      p.values + int64_t{p.n_kv_heads} * p.n_segments * p.group * p.n_tokens * kAttentionHeadDim;
  const auto native = static_cast<cudaStream_t>(stream.native());
  cuda::launch_attention_sm80_int8(p, native);
  cuda::launch_attention_merge(p, native);
}

}  // namespace lockstep
