#include <algorithm>
#include <vector>

#include "engine/base/math.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/kv_write/kv_write.h"

namespace lockstep {

// One query head at a time, all positions at once, everything in float64: no segments, no lanes.
void attention_oracle(const AttentionArgs& args, double* value) {
  const int head_dim = args.cache.head_dim;
  const int group = args.n_heads / args.cache.n_kv_heads;
  std::vector<float> stored(static_cast<size_t>(head_dim));
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    const int64_t n_keys = args.first_position + t + 1;
    std::vector<double> score(static_cast<size_t>(n_keys));
    for (int h = 0; h < args.n_heads; ++h) {
      const float* q = args.q + t * args.q_stride + h * args.q_head_stride;
      double* out = value + (t * args.n_heads + h) * head_dim;
      for (int64_t j = args.first_visible; j < n_keys; ++j) {
        kv_read(args.cache, false, h / group, j, stored.data());
        double sum = 0;
        for (int d = 0; d < head_dim; ++d) sum += double{q[d]} * double{stored[d]};
        score[j] = sum * double{args.scale};
      }
      const double top = *std::max_element(score.begin() + args.first_visible, score.end());
      double total = 0;
      std::fill(out, out + head_dim, 0.0);
      for (int64_t j = args.first_visible; j < n_keys; ++j) {
        const double p = exp_f64(score[j] - top);
        total += p;
        kv_read(args.cache, true, h / group, j, stored.data());
        for (int d = 0; d < head_dim; ++d) out[d] += p * double{stored[d]};
      }
      for (int d = 0; d < head_dim; ++d) {
        out[d] /= total;
        if (args.gate != nullptr) {
          const double gate = args.gate[t * args.gate_stride + h * args.gate_head_stride + d];
          out[d] /= 1.0 + exp_f64(-gate);
        }
      }
    }
  }
}

}  // namespace lockstep
