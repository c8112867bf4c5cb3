// Op         Adds a branch to the residual stream.
// Math       x[i] = round(x[i] + y[i])
// Shapes     x, y [n].
#pragma once

#include <cstdint>

#include "engine/ops/common/rounding.h"

namespace lockstep {

void residual_add(float* x, const float* y, int64_t n, Rounding rounding);

// The two half-K partial sums of a row-parallel product, added in the order of ranks (I3):
// out[i] = round( round(p0[i]) + round(p1[i]) ). out may be p0 or p1.
void sum_partials(const float* p0, const float* p1, float* out, int64_t n, Rounding rounding);

}  // namespace lockstep
