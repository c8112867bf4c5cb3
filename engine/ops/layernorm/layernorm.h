// Op         Layer normalisation of rows with a learned scale and shift.
// Math       m = mean_i x[r,i];  v = mean_i (x[r,i] - m)^2
//            out[r,i] = round( ((x[r,i] - m) * (1 / sqrt(v + eps))) * weight[i] + bias[i] )
//            Both sums run in the 16 virtual lanes of ops/linear (the first adds, the second uses
//            fused multiply-adds). sqrt and division are IEEE; the last product and sum are fused.
// Shapes     x, out [n_rows, width] dense; weight, bias [width]; width a multiple of 16.
// Dtypes     float32; out rounded as `rounding` says.
// Aliasing   out may be x.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

struct LayerNormArgs {
  const float* x;
  const float* weight;  // [width]
  const float* bias;    // [width]
  float* out;
  int64_t n_rows;
  int64_t width;
  float eps;
  Rounding rounding;
};

void layernorm(const LayerNormArgs& args, ThreadPool& pool);

// value [n_rows, width] dense, not rounded. error is what the float32 kernel may be off before its
// last rounding (tolerance.h).
void layernorm_oracle(const LayerNormArgs& args, double* value, double* error);

}  // namespace lockstep
