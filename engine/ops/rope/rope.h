// Op         Rotary position embedding of the first rotary_dim values of each head (NeoX halves).
// Math       for i < rotary_dim/2, axis a = i mod 3 (T, H, W: the interleaved mRoPE sections reduce
// to
//            this), angle = float(inv_freq[i] * float(position[t][a])):
//            out[i] = x[i] cos - x[i+half] sin;  out[i+half] = x[i+half] cos + x[i] sin
//            cos and sin are correctly rounded to float32 from float64; products and the sum are
//            float32 with one fused multiply-add; one rounding at the end. Other values pass
//            through.
// Shapes     x [n_tokens, n_heads, head_dim], token stride token_stride; positions [n_tokens][3].
// Dtypes     float32 in place, rounded as `rounding` says (only the rotated values are written).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

using RopePosition = std::array<int32_t, 3>;  // T, H, W

// inv_freq[i] = theta^(-2i/rotary_dim), float32.
std::vector<float> rope_inverse_frequencies(double theta, int rotary_dim);

struct RopeArgs {
  float* x;
  int64_t token_stride;
  const RopePosition* positions;  // [n_tokens]
  const float* inv_freq;          // [rotary_dim / 2]
  int64_t n_tokens;
  int n_heads;
  int head_dim;
  int rotary_dim;
  Rounding rounding;
};

void rope(const RopeArgs& args, ThreadPool& pool);
void rope_oracle(const RopeArgs& args, double* value);  // [n_tokens, n_heads, head_dim] dense

}  // namespace lockstep
