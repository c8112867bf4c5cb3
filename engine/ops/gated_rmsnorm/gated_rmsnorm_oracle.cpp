#include <cmath>

#include "engine/ops/gated_rmsnorm/gated_rmsnorm.h"

namespace lockstep {

void gated_rmsnorm_oracle(const GatedRmsNormArgs& args, double* value) {
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.width;
    const float* z = args.z + row * args.width;
    double square_sum = 0.0;
    for (int64_t i = 0; i < args.width; ++i) square_sum += double{x[i]} * double{x[i]};
    const double root = std::sqrt(square_sum / static_cast<double>(args.width) + double{args.eps});
    for (int64_t i = 0; i < args.width; ++i) {
      const double silu = double{z[i]} / (1.0 + std::exp(-double{z[i]}));
      value[row * args.width + i] = double{x[i]} / root * double{args.weight[i]} * silu;
    }
  }
}

}  // namespace lockstep
