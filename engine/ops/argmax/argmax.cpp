#include "engine/ops/argmax/argmax.h"

#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/math.h"

namespace lockstep {

int64_t argmax(const float* x, int64_t n) {
  LOCKSTEP_CHECK(n >= 1);
  if (std::isnan(x[0])) return -1;
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (x[i] <= x[best]) continue;
    if (std::isnan(x[i])) return -1;
    best = i;
  }
  return best;
}

double log_sum_exp(const float* x, int64_t n) {
  const int64_t best = argmax(x, n);
  if (best < 0) return std::numeric_limits<double>::quiet_NaN();
  const double largest = x[best];
  // Infinity minus itself would turn the two well-defined cases into NaN.
  if (std::isinf(largest)) return largest;
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += exp_f64(double{x[i]} - largest);
  return largest + log_f64(sum);
}

}  // namespace lockstep
