// Op         Depthwise causal convolution of width 4, then SiLU, carrying the last three inputs.
// Math       c[t,ch] = sum_{j=0..3} weight[ch,j] * m[t-3+j,ch] in order of j by FMA from 0;
//            out = round(silu(c)). Inputs before t = 0 come from `state`.
// Shapes     m, out [n_tokens, n_channels] with token strides; weight [n_channels, 4];
//            state [n_channels, 3], oldest first, raw inputs (before the convolution).
// Effects    out, and state becomes the last three inputs of (old state, m).
// Aliasing   out may be m.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

struct CausalConvArgs {
  const float* m;
  int64_t m_stride;
  const float* weight;  // [n_channels, 4] float32
  float* state;         // [n_channels, 3]
  float* out;
  int64_t out_stride;
  int64_t n_tokens;
  int64_t n_channels;
  Rounding rounding;
};

void causal_conv(const CausalConvArgs& args, ThreadPool& pool);
// value [n_tokens, n_channels]; args.state is read and left as it is.
void causal_conv_oracle(const CausalConvArgs& args, double* value);

}  // namespace lockstep
