// Op         Full attention of the patches of one frame among themselves.
// Math       per head: s[q,k] = scale * (Q[q] . K[k]);  p = exp(s - max_k s);
//            out[q,:] = round( (sum_k p[q,k] V[k,:]) / sum_k p[q,k] )
//            The dot runs in the 16 virtual lanes of ops/linear, a head width that is no multiple
//            of 16 being filled up with zeros. The denominator adds in 16 lanes by k mod 16 and a
//            tree; values are added key by key, ascending, by fused multiply-add. All float32.
// Shapes     q, k, v [n_tokens, n_heads, head_dim] with one token stride (three parts of one fused
//            projection); out [n_tokens, n_heads * head_dim] dense.
// Dtypes     float32; out rounded as `rounding` says.
// Aliasing   out must not overlap the inputs.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

struct VisionAttentionArgs {
  const float* q;
  const float* k;
  const float* v;
  int64_t token_stride;
  float* out;
  int64_t n_tokens;
  int n_heads;
  int head_dim;
  float scale;
  Rounding rounding;
};

void vision_attention(const VisionAttentionArgs& args, ThreadPool& pool);

// value, dense as out; error: what the float32 kernel may be off before its last rounding.
void vision_attention_oracle(const VisionAttentionArgs& args, double* value, double* error);

}  // namespace lockstep
