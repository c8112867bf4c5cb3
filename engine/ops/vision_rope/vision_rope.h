// Op         Rotary position embedding over rows and columns of an image grid.
// Math       for i < half = head_dim/2: axis = row for i < half/2, else column; f = i mod (half/2);
//            angle = float(inv_freq[f] * float(position[axis]))
//            out[i] = x[i] cos - x[i+half] sin;  out[i+half] = x[i+half] cos + x[i] sin
//            cos and sin are correctly rounded to float32 from float64; products and the sum are
//            float32 with one fused multiply-add; one rounding at the end.
// Shapes     x [n_tokens, n_heads, head_dim], token stride token_stride; head_dim a multiple of 4;
//            positions [n_tokens][2]; inv_freq [head_dim/4].
// Dtypes     float32 in place, rounded as `rounding` says.
#pragma once

#include <array>
#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

using GridPosition = std::array<int32_t, 2>;  // row, column; not negative

struct VisionRopeArgs {
  float* x;
  int64_t token_stride;
  const GridPosition* positions;
  const float* inv_freq;
  int64_t n_tokens;
  int n_heads;
  int head_dim;
  Rounding rounding;
};

void vision_rope(const VisionRopeArgs& args, ThreadPool& pool);
void vision_rope_oracle(const VisionRopeArgs& args,
                        double* value);  // [n_tokens, n_heads, head_dim]

}  // namespace lockstep
