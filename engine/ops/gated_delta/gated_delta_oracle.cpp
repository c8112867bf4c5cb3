#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/math.h"
#include "engine/ops/gated_delta/gated_delta.h"

namespace lockstep {
namespace {

std::vector<double> normalised(const float* x, int n, double factor) {
  double sum = 1e-6;
  for (int i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
  std::vector<double> out(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) out[i] = double{x[i]} / std::sqrt(sum) * factor;
  return out;
}

}  // namespace

void gated_delta_oracle(const GatedDeltaArgs& args, double* value, double* state) {
  const int dk = args.dk;
  const int dv = args.dv;
  std::copy(args.state, args.state + int64_t{args.n_v_heads} * dk * dv, state);
  std::vector<double> update(static_cast<size_t>(dv));
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    for (int h = 0; h < args.n_v_heads; ++h) {
      const int key_head = h / (args.n_v_heads / args.n_k_heads);
      const int64_t qk = t * args.qk_stride + int64_t{key_head} * dk;
      const auto q = normalised(args.q + qk, dk, 1.0 / std::sqrt(static_cast<double>(dk)));
      const auto k = normalised(args.k + qk, dk, 1.0);
      const double decay = exp_f64(args.log_decay[t * args.n_v_heads + h]);
      const double beta = args.beta[t * args.n_v_heads + h];
      double* s = state + int64_t{h} * dk * dv;
      for (int i = 0; i < dk * dv; ++i) s[i] *= decay;
      for (int c = 0; c < dv; ++c) {
        double read = 0;
        for (int r = 0; r < dk; ++r) read += s[r * dv + c] * k[r];
        update[c] = beta * (double{args.v[t * args.v_stride + h * dv + c]} - read);
      }
      double* out = value + (t * args.n_v_heads + h) * dv;
      std::fill(out, out + dv, 0.0);
      for (int r = 0; r < dk; ++r) {
        for (int c = 0; c < dv; ++c) {
          s[r * dv + c] += k[r] * update[c];
          out[c] += s[r * dv + c] * q[r];
        }
      }
    }
  }
}

}  // namespace lockstep
