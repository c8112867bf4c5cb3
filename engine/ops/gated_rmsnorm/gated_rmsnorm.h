// Op         Root-mean-square normalisation of GDN read-outs, then a SiLU gate.
// Math       out[r,i] = round( x[r,i] / sqrt(mean_i x[r,i]^2 + eps) * weight[i] * silu(z[r,i]) )
// Shapes     x, z, out [n_rows, width] dense; weight [width]; width a multiple of 16.
// Dtypes     float32; one rounding at the end as `rounding` says. The norm comes before the gate.
// Aliasing   out may be x.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

struct GatedRmsNormArgs {
  const float* x;
  const float* z;
  const float* weight;
  float* out;
  int64_t n_rows;
  int64_t width;
  float eps;
  Rounding rounding;
};

void gated_rmsnorm(const GatedRmsNormArgs& args, ThreadPool& pool);
void gated_rmsnorm_oracle(const GatedRmsNormArgs& args, double* value);

}  // namespace lockstep
