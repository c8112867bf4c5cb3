// Op         Gaussian error linear unit, exact or in its tanh form.
// Math       exact: x[i] = round( x[i] Phi(x[i]) ), Phi the normal distribution function
//            tanh:  x[i] = round( x[i] / (1 + exp(-2u)) ), u = sqrt(2/pi) (x + 0.044715 x^3), which
//            is x/2 (1 + tanh(u)) without the cancellation Both in float32 with own polynomials,
//            each value by itself.
// Shapes     x [n], in place.
// Dtypes     float32, rounded as `rounding` says. NaN stays NaN.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

enum class GeluKind : uint8_t { exact, tanh };

void gelu(float* x, int64_t n, GeluKind kind, Rounding rounding, ThreadPool& pool);
void gelu_oracle(const float* x, int64_t n, GeluKind kind, double* value);

}  // namespace lockstep
