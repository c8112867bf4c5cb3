#include <cmath>

#include "engine/ops/gelu/gelu.h"

namespace lockstep {

void gelu_oracle(const float* x, int64_t n, GeluKind kind, double* value) {
  for (int64_t i = 0; i < n; ++i) {
    const double v = x[i];
    if (kind == GeluKind::exact) {
      value[i] = 0.5 * v * std::erfc(-v / std::sqrt(2.0));
    } else {
      const double u = std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v);
      value[i] = v / (1.0 + std::exp(-2.0 * u));
    }
  }
}

}  // namespace lockstep
