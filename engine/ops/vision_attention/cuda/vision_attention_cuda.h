// Op         ops/vision_attention on a card.
// Math       as ops/vision_attention, in float32. Scores: one chain of FMA over the head. Keys run
//            in steps of 32 with a running maximum; the denominator: a lane adds keys 4 l ... 4 l +
//            3 of each step, eight lanes in pairs 4, 2, 1 apart at the end; values are added key by
//            key by FMA, one division. A row's bits depend on its query and on all keys, in order.
// Shapes     q, k, v [n_tokens, n_heads, head_dim] with one token stride; out [n_tokens, n_heads *
//            head_dim] dense; head_dim 64 or 72.
// Dtypes     bfloat16. Heads start at multiples of 16 bytes.
// Oracle     vision_attention_oracle; bound: tolerance::vision_attention_cuda_error.
#pragma once

#include <cstdint>

#include "engine/device/device.h"

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
};

void vision_attention_cuda(const VisionAttentionCudaArgs& args, Stream& stream);

}  // namespace lockstep
