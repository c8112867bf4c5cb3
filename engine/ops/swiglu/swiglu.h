// Op         SiLU-gated product of the MLP.
// Math       out[t,i] = round( gate / (1 + exp(-gate)) * up )
// Shapes     gate, up, out [n_tokens, width] with row strides.
// Aliasing   out may be gate or up.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

struct SwigluArgs {
  const float* gate;
  int64_t gate_stride;
  const float* up;
  int64_t up_stride;
  float* out;
  int64_t out_stride;
  int64_t n_tokens;
  int64_t width;
  Rounding rounding;
};

void swiglu(const SwigluArgs& args, ThreadPool& pool);
void swiglu_oracle(const SwigluArgs& args, double* value);

}  // namespace lockstep
