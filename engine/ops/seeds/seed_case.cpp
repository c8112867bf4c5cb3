#include "engine/ops/seeds/seed_case.h"

#include <cmath>

#include "engine/ops/common/op_test_util.h"

namespace lockstep::op_seeds {

float Draw::scale() {
  return static_cast<float>(std::pow(10.0, 6.0 * stream.next_uniform() - 3.0));
}

std::vector<float> Draw::floats(int64_t n, float magnitude, Rounding rounding) {
  return op_test::random_floats(data_seed * 64 + static_cast<uint64_t>(stream.next_below(64)), n,
                                magnitude, rounding);
}

double judged(std::vector<float> got, const std::vector<double>& want,
              const std::vector<double>& bound, bool plant, Draw& draw) {
  if (plant) {
    const size_t at = draw.stream.next_below(static_cast<uint32_t>(got.size()));
    // Away from what is right, and at least one float32 step.
    const double error = std::fabs(got[at] - want[at]) + 4.0 * bound[at];
    got[at] = std::nextafter(static_cast<float>(want[at] + error), INFINITY);
  }
  return op_test::worst_ratio(got, want, bound);
}

}  // namespace lockstep::op_seeds
