#include "engine/ops/gdn_gates/gdn_gates.h"

#include <cmath>

#include "engine/base/math.h"

namespace lockstep {
namespace {

constexpr double kSoftplusLinear = 20.0;

// log(1 + e) for e >= 0. The rounding error of 1 + e is undone by the factor e / ((1 + e) - 1)
// (Kahan), so small e keep their full relative accuracy.
double log1p_f64(double e) {
  const double one_plus = 1.0 + e;
  if (one_plus == 1.0) return e;
  return log_f64(one_plus) * (e / (one_plus - 1.0));
}

double softplus(double x) {
  if (std::isnan(x) || x > kSoftplusLinear) return x;
  return log1p_f64(exp_f64(x));
}

}  // namespace

void gdn_gates(const GdnGatesArgs& args) {
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    for (int h = 0; h < args.n_heads; ++h) {
      const int64_t i = t * args.n_heads + h;
      const double step = softplus(double{args.a[i]} + double{args.dt_bias[h]});
      args.log_decay[i] = static_cast<float>(-exp_f64(args.a_log[h]) * step);
      args.beta[i] = static_cast<float>(1.0 / (1.0 + exp_f64(-double{args.b[i]})));
    }
  }
}

}  // namespace lockstep
