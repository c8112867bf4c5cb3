#include <cmath>

#include "engine/ops/gdn_gates/gdn_gates.h"

namespace lockstep {
namespace {

constexpr double kSoftplusLinear = 20.0;  // softplus(x) = x above it

}  // namespace

// libm here: a path of its own for every function that the op computes with the engine's.
void gdn_gates_oracle(const GdnGatesArgs& args, double* log_decay, double* beta) {
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    for (int h = 0; h < args.n_heads; ++h) {
      const int64_t i = t * args.n_heads + h;
      const double x = double{args.a[i]} + double{args.dt_bias[h]};
      const double step = x > kSoftplusLinear ? x : std::log1p(std::exp(x));
      log_decay[i] = -std::exp(double{args.a_log[h]}) * step;
      beta[i] = 1.0 / (1.0 + std::exp(-double{args.b[i]}));
    }
  }
}

}  // namespace lockstep
