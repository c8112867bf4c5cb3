// Op         ops/attention on a card, for decode: up to kAttentionTokens columns of one sequence
//            against its cache, with the output gate.
// Math       as ops/attention; in base 2: s_j = (q . k_j) * scale * log2(e). Positions are cut into
//            segments that end at multiples of `segment`; a segment runs in steps of kAttentionStep
//            positions with a running maximum: p_j = 2^(s_j - m), rounded to binary16 after a
//            factor 2^14; the denominator sums the rounded values. Merge: weights 2^(m_i - max m),
//            numerators added by FMA over segments i, i + 4, ... and those four sums in order.
//            q is scaled by a power of two per row and rounded to binary16 (exact above 2^-31 of
//            the row's largest); INT8 K codes are exact, their scales multiply float32 partial sums
//            of 64 values; V is code * scale rounded to binary16.
//            The bits of a column depend on its q, its position, the cache and `segment` alone.
// Shapes     q [n_tokens, n_heads, 256], gate likewise (may be null), out [n_tokens, n_heads * 256]
//            with strides in elements. n_heads / n_kv_heads at most kAttentionGroup.
// Dtypes     q, gate, out bfloat16; cache int8; out is rounded once before the gate, once after it.
// Effects    out and `partials` (attention_partial_bytes). The cache must hold all positions up to
//            first_position + n_tokens - 1.
// Oracle     attention_oracle; bound: tolerance::attention_cuda_bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/device/device.h"
#include "engine/ops/attention/kv_view.h"

namespace lockstep {

inline constexpr int kAttentionTokens = 8;
inline constexpr int kAttentionGroup = 6;  // query heads that share a KV head
inline constexpr int kAttentionStep = 128;
inline constexpr int kAttentionHeadDim = 256;

struct AttentionCudaPlan {
  int n_heads = 0;
  int n_kv_heads = 0;
  KvType type = KvType::int8;
  int64_t max_positions = 0;  // what a launch is wide enough for
  int segment = 0;            // positions; a multiple of kAttentionStep
  int64_t partial_bytes = 0;
};

// Throws Error that names what no kernel is registered for. arch as DeviceFacts has it.
AttentionCudaPlan plan_attention_cuda(int n_heads, int n_kv_heads, int head_dim, KvType type,
                                      int64_t max_positions, int segment, int arch);

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
  int n_tokens = 0;
  float scale = 0.0f;
  std::byte* partials = nullptr;
};

void attention_cuda(const AttentionCudaArgs& args, Stream& stream);

}  // namespace lockstep
