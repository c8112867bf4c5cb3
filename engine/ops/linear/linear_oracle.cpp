#include <cmath>
#include <vector>

#include "engine/ops/linear/linear.h"

namespace lockstep {

void linear_oracle(const LinearArgs& args, double* value, double* condition) {
  const WeightMatrix& weight = args.weight;
  // The decoder would round the product with the row scale, the kernel scales the finished sum.
  WeightMatrix unscaled = weight;
  unscaled.row_scale = nullptr;
  std::vector<float> row(static_cast<size_t>(weight.n_cols));
  for (int64_t n = 0; n < weight.n_rows; ++n) {
    decode_row(unscaled, n, row.data());
    const double scale = weight.row_scale == nullptr ? 1.0 : double{weight.row_scale[n]};
    for (int64_t t = 0; t < args.n_tokens; ++t) {
      const float* x = args.x + t * args.x_stride;
      double sum = 0.0;
      double magnitude = 0.0;
      for (int64_t k = 0; k < weight.n_cols; ++k) {
        const double product = double{x[k]} * double{row[static_cast<size_t>(k)]};
        sum += product;
        magnitude += std::fabs(product);
      }
      value[t * weight.n_rows + n] = sum * scale;
      condition[t * weight.n_rows + n] = magnitude * std::fabs(scale);
    }
  }
}

}  // namespace lockstep
