#include "engine/ops/bias_add/bias_add.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"

namespace lockstep {

void bias_add(float* x, const float* bias, int64_t n_rows, int64_t width, Rounding rounding,
              ThreadPool& pool) {
  LOCKSTEP_CHECK(width > 0);
  const int64_t grain = std::max<int64_t>(1, 16384 / width);
  pool.parallel_for(n_rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* values = x + row * width;
      if (rounding == Rounding::none) {
        for (int64_t i = 0; i < width; ++i) values[i] += bias[i];
      } else {
        for (int64_t i = 0; i < width; ++i) values[i] = round_to_bf16(values[i] + bias[i]);
      }
    }
  });
}

}  // namespace lockstep
