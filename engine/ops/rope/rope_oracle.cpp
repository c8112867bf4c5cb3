#include <cmath>

#include "engine/ops/rope/rope.h"

namespace lockstep {

void rope_oracle(const RopeArgs& args, double* value) {
  const int half = args.rotary_dim / 2;
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    for (int h = 0; h < args.n_heads; ++h) {
      const float* head = args.x + t * args.token_stride + int64_t{h} * args.head_dim;
      double* out = value + (t * args.n_heads + h) * args.head_dim;
      for (int i = 0; i < args.head_dim; ++i) out[i] = head[i];
      for (int i = 0; i < half; ++i) {
        const float position = static_cast<float>(args.positions[t][static_cast<size_t>(i % 3)]);
        const double angle = static_cast<double>(args.inv_freq[i] * position);
        const double first = head[i];
        const double second = head[i + half];
        out[i] = first * std::cos(angle) - second * std::sin(angle);
        out[i + half] = second * std::cos(angle) + first * std::sin(angle);
      }
    }
  }
}

}  // namespace lockstep
