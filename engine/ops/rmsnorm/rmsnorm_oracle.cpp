#include <cmath>

#include "engine/ops/rmsnorm/rmsnorm.h"

namespace lockstep {

void rmsnorm_oracle(const RmsNormArgs& args, double* value) {
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    double square_sum = 0.0;
    for (int64_t i = 0; i < args.width; ++i) square_sum += double{x[i]} * double{x[i]};
    const double root = std::sqrt(square_sum / static_cast<double>(args.width) + double{args.eps});
    for (int64_t i = 0; i < args.width; ++i) {
      const double scale = double{args.weight_offset} + double{args.weight[i]};
      value[row * args.width + i] = double{x[i]} / root * scale;
    }
  }
}

}  // namespace lockstep
