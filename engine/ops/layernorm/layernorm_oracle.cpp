#include <algorithm>
#include <cmath>

#include "engine/ops/common/tolerance.h"
#include "engine/ops/layernorm/layernorm.h"

namespace lockstep {

void layernorm_oracle(const LayerNormArgs& args, double* value, double* error) {
  const auto width = static_cast<double>(args.width);
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.width;
    double sum = 0.0;
    double magnitude = 0.0;
    for (int64_t i = 0; i < args.width; ++i) {
      sum += double{x[i]};
      magnitude += std::fabs(double{x[i]});
    }
    const double mean = sum / width;
    double squares = 0.0;
    for (int64_t i = 0; i < args.width; ++i)
      squares += (double{x[i]} - mean) * (double{x[i]} - mean);
    const double root = std::sqrt(squares / width + double{args.eps});
    const double mean_error = tolerance::layernorm_mean_error(args.width, magnitude / width);
    for (int64_t i = 0; i < args.width; ++i) {
      const double centred = double{x[i]} - mean;
      const double scaled = centred / root * double{args.weight[i]};
      const int64_t at = row * args.width + i;
      value[at] = scaled + double{args.bias[i]};
      error[at] = tolerance::layernorm_error(args.width, mean_error / root,
                                             std::fabs(centred) / root, args.weight[i], value[at]);
    }
  }
}

}  // namespace lockstep
