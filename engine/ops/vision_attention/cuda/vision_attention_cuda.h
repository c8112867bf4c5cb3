// Op         ops/vision_attention on a card.
// Math       as ops/vision_attention, with a running maximum. A row's bits depend on its query, on
// all
//            keys in order and on the family.
//            sm70: float32. Scores: one chain of FMA over the head. Steps of 32 keys; the
//                  denominator: a lane adds keys 4 l ... 4 l + 3 of each step, eight lanes in pairs
//                  4, 2, 1 apart at the end; values key by key by FMA.
//            sm80: products in the matrix unit, float32 sums; base 2: 2^(s scale log2(e) - max).
//                  Steps of 64 keys; a weight enters as the sum of two bfloat16 (2^-17 of it is
//                  lost); the denominator adds the whole weights, four lanes in pairs 1, 2 apart.
//            One division at the end.
// Shapes     q, k, v [n_tokens, n_heads, head_dim] with one token stride; out [n_tokens, n_heads *
//            head_dim] dense; head_dim 64 or 72.
// Dtypes     bfloat16. Heads start at multiples of 16 bytes.
// Oracle     vision_attention_oracle; bound: tolerance::vision_attention_sm70_error, _sm80_error.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/linear/cuda/linear_plan_cuda.h"

namespace lockstep {

struct VisionAttentionCudaArgs {
  const uint16_t* q = nullptr;
  const uint16_t* k = nullptr;
  const uint16_t* v = nullptr;
  int64_t token_stride = 0;
  uint16_t* out = nullptr;
  int64_t n_tokens = 0;
  int n_heads = 0;
  int head_dim = 0;
  float scale = 0.0f;
  KernelFamily family = KernelFamily::sm70;
};

void vision_attention_cuda(const VisionAttentionCudaArgs& args, Stream& stream);

}  // namespace lockstep
