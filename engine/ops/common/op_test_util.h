// What the tests of element-wise ops share: seeded data, comparison against a bound, instruction
// sets.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/base/philox.h"
#include "engine/ops/common/cpu_target.h"
#include "engine/ops/common/rounding.h"

namespace lockstep::op_test {

inline constexpr float kGuard = -12345.75f;  // stands where nothing may be written

// Uniform in [-scale, scale); values that bfloat16 holds when `rounding` says so.
inline std::vector<float> random_floats(uint64_t seed, int64_t n, float scale,
                                        Rounding rounding = Rounding::none) {
  PhiloxStream stream(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) {
    value = scale * (2.0f * stream.next_uniform() - 1.0f);
    if (rounding == Rounding::bf16) value = round_to_bf16(value);
  }
  return values;
}

// Largest |got - want| / bound; above 1 the bound is violated. A NaN counts as infinitely wrong.
template <typename Values>
double worst_ratio(const Values& got, std::span<const double> want, std::span<const double> bound) {
  double worst = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    const double ratio = error == 0.0 ? 0.0 : error / bound[i];
    if (std::isnan(ratio)) return std::numeric_limits<double>::infinity();
    worst = std::fmax(worst, ratio);
  }
  return worst;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return false;
  }
  return true;
}

inline bool all_bf16(std::span<const float> values) {
  for (const float value : values) {
    if ((std::bit_cast<uint32_t>(value) & 0xffffu) != 0) return false;
  }
  return true;
}

// Calls body(name) once for each instruction set of this machine, then returns to the default.
template <typename Body>
void on_every_target(Body&& body) {
  for (const std::string& name : available_cpu_targets()) {
    select_cpu_target(name);
    body(name);
  }
  select_cpu_target("auto");
}

}  // namespace lockstep::op_test
