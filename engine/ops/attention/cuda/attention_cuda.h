// Op         ops/attention on a card, with the output gate: columns of one sequence at positions
//            first_position + t against its cache.
// Math       as ops/attention, exponents in base 2: s_j = (q . k_j) * scale * log2(e). What a route
//            rounds, and in which order it adds, is in docs/numerics.md; segments of decode are in
//            attention_segments.h, the paths in attention_plan_cuda.h.
// Shapes     q [n_tokens, n_heads, 256], gate likewise (may be null), out [n_tokens, n_heads * 256]
//            with strides in elements. n_heads / n_kv_heads at most kAttentionGroup.
// Dtypes     q, gate, out bfloat16; cache as planned; out is rounded once before the gate, once
//            after it.
// Effects    out and `partials` (plan.partial_bytes). The cache must hold all positions up to
//            first_position + n_tokens - 1.
// Oracle     attention_oracle; bound: tolerance::attention_cuda_*.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/attention/cuda/attention_plan_cuda.h"

namespace lockstep {

struct AttentionCudaArgs {
  const AttentionCudaPlan& plan;
  const uint16_t* q = nullptr;
  int64_t q_stride = 0;
  int64_t q_head_stride = 0;
  const uint16_t* gate = nullptr;
  int64_t gate_stride = 0;
  int64_t gate_head_stride = 0;
  uint16_t* out = nullptr;
  int64_t out_stride = 0;
  const std::byte* pool = nullptr;          // pages, see kv_view.h
  const uint32_t* page_table = nullptr;     // on the card
  const int32_t* first_position = nullptr;  // on the card: the same launch serves every length
  int n_tokens = 0;                         // decode: at most kAttentionTokens
  float scale = 0.0f;
  std::byte* partials = nullptr;
  int n_multiprocessors = 1;  // prefill: changes the shape of the launch, no bits
};

void attention_cuda(const AttentionCudaArgs& args, Stream& stream);

}  // namespace lockstep
