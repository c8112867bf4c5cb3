// Op         Root-mean-square normalisation of rows with a learned scale.
// Math       out[r,i] = round( x[r,i] * (1 / sqrt(mean_i x[r,i]^2 + eps)) * (weight_offset +
// weight[i]) )
//            The mean's sum runs in the 16 virtual lanes of ops/linear. sqrt and division are IEEE.
// Shapes     x, out [n_rows, width] with row strides; weight [width]; width a multiple of 16.
// Dtypes     float32; out rounded as `rounding` says.
// Aliasing   out may be x.
// Source     Qwen3.5 norms: weight_offset 1 for hidden, q, k and MTP norms.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

struct RmsNormArgs {
  const float* x;
  int64_t x_stride;
  const float* weight;  // [width] float32
  float* out;
  int64_t out_stride;
  int64_t n_rows;
  int64_t width;
  float eps;
  float weight_offset;
  Rounding rounding;
};

void rmsnorm(const RmsNormArgs& args, ThreadPool& pool);
void rmsnorm_oracle(const RmsNormArgs& args, double* value);  // [n_rows, width] dense

}  // namespace lockstep
