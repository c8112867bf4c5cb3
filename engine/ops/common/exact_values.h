// Values of exact cases (exact_case.h).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/philox.h"

namespace lockstep {

// Uniform from -scale to scale; with `bf16` such values as bfloat16 holds.
inline std::vector<float> exact_floats(PhiloxStream& random, int64_t n, float scale, bool bf16) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) {
    value = scale * (2.0f * random.next_uniform() - 1.0f);
    if (bf16) value = round_to_bf16(value);
  }
  return values;
}

inline float exact_integer(PhiloxStream& random, uint32_t largest) {
  return static_cast<float>(random.next_below(2 * largest + 1)) - static_cast<float>(largest);
}

// Without the sign of zeros, which an order of sums may turn.
inline std::vector<float> with_plain_zeros(std::vector<float> values) {
  for (float& value : values) value += 0.0f;
  return values;
}

inline constexpr float kSquaresEps = 1.0f;

// Small integers, in any order, whose sum is 0 and whose mean square is 3, 15 or 63: with
// kSquaresEps its root is 2, 4 or 8, so that normalising is exact. n is a multiple of 32.
inline std::vector<float> exact_squares(PhiloxStream& random, int64_t n) {
  struct Kind {
    float low;
    float high;
    int n_low;  // of 32
  };
  constexpr Kind kKinds[] = {{1, 3, 24}, {3, 5, 20}, {7, 9, 18}};
  LOCKSTEP_CHECK(n % 32 == 0);
  const Kind& kind = kKinds[random.next_below(3)];
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    const float size = i % 32 < kind.n_low ? kind.low : kind.high;
    values.push_back(i % 2 == 0 ? size : -size);
  }
  for (size_t i = values.size() - 1; i > 0; --i) {
    std::swap(values[i], values[random.next_below(static_cast<uint32_t>(i + 1))]);
  }
  return values;
}

}  // namespace lockstep
