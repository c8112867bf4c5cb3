// Op         Turns the GDN projections a and b into decay and write strength.
// Math       log_decay[t,h] = -exp(a_log[h]) * softplus(a[t,h] + dt_bias[h]);  softplus(x) = x for
// x > 20
//            beta[t,h] = 1 / (1 + exp(-b[t,h]))
// Shapes     a, b, log_decay, beta [n_tokens, n_heads] dense; a_log, dt_bias [n_heads].
// Dtypes     float32 throughout, never rounded to bf16. exp and log1p are the engine's own
// polynomials.
#pragma once

#include <cstdint>

namespace lockstep {

struct GdnGatesArgs {
  const float* a;
  const float* b;
  const float* a_log;
  const float* dt_bias;
  float* log_decay;
  float* beta;
  int64_t n_tokens;
  int n_heads;
};

void gdn_gates(const GdnGatesArgs& args);
void gdn_gates_oracle(const GdnGatesArgs& args, double* log_decay, double* beta);

}  // namespace lockstep
