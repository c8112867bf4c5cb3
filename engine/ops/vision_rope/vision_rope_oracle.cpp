#include <cmath>

#include "engine/ops/vision_rope/vision_rope.h"

namespace lockstep {

void vision_rope_oracle(const VisionRopeArgs& args, double* value) {
  const int half = args.head_dim / 2;
  for (int64_t t = 0; t < args.n_tokens; ++t) {
    for (int h = 0; h < args.n_heads; ++h) {
      const float* head = args.x + t * args.token_stride + int64_t{h} * args.head_dim;
      double* out = value + (t * args.n_heads + h) * args.head_dim;
      for (int i = 0; i < half; ++i) {
        const size_t axis = i < half / 2 ? 0 : 1;
        const auto position = static_cast<float>(args.positions[t][axis]);
        const double angle = static_cast<double>(args.inv_freq[i % (half / 2)] * position);
        const double first = head[i];
        const double second = head[i + half];
        out[i] = first * std::cos(angle) - second * std::sin(angle);
        out[i + half] = second * std::cos(angle) + first * std::sin(angle);
      }
    }
  }
}

}  // namespace lockstep
