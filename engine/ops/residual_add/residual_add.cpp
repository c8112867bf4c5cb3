#include "engine/ops/residual_add/residual_add.h"

#include "engine/base/float_formats.h"

namespace lockstep {

void residual_add(float* x, const float* y, int64_t n, Rounding rounding) {
  if (rounding == Rounding::none) {
    for (int64_t i = 0; i < n; ++i) x[i] += y[i];
    return;
  }
  for (int64_t i = 0; i < n; ++i) x[i] = round_to_bf16(x[i] + y[i]);
}

void sum_partials(const float* p0, const float* p1, float* out, int64_t n, Rounding rounding) {
  if (rounding == Rounding::none) {
    for (int64_t i = 0; i < n; ++i) out[i] = p0[i] + p1[i];
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    out[i] = round_to_bf16(round_to_bf16(p0[i]) + round_to_bf16(p1[i]));
  }
}

}  // namespace lockstep
