// Every error bound that the op tests use. Each is derived from the number of roundings on the path
// from inputs to output; none is measured and then widened.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/ops/common/rounding.h"

namespace lockstep::tolerance {

// ---- Units -------------------------------------------------------------------------------------

inline constexpr double kFloatUnit = 0x1p-24;   // largest relative error of one float32 rounding
inline constexpr double kBf16Unit = 0x1p-8;     // the same for bfloat16
inline constexpr double kFloatTiny = 0x1p-149;  // spacing of float32 subnormals
inline constexpr double kBf16Tiny = 0x1p-133;   // spacing of bfloat16 subnormals

// Relative error of k roundings in a row, second-order terms included (Higham's gamma_k).
constexpr double accumulated(double k) {
  return k * kFloatUnit / (1.0 - k * kFloatUnit);
}

// What the last rounding adds to a value that is off by `error` before it.
inline double with_output_rounding(double value, double error, Rounding rounding) {
  if (rounding == Rounding::none) return error;
  return error + (std::fabs(value) + error) * kBf16Unit + kBf16Tiny;
}

// ---- Norms, gates and rotations ----------------------------------------------------------------

// exp_vec promises 2 ulp: 4 roundings. 1 + e: one more; the division: one more.
inline constexpr double kSiluRoundings = 6;
// Below -88.72 the float32 exp(-x) is infinite and silu returns -0 where the true value is still
// x exp(x): at most 89 exp(-88.72) in magnitude.
inline constexpr double kSiluFlushed = 2.7e-37;

// Sum of squares in 16 lanes: width / 16 fused steps and 4 tree steps, all terms positive, so the
// relative errors just add. The mean's division and the sum with eps: 2 more. The root halves that.
constexpr double mean_square_root_roundings(int64_t width) {
  return (static_cast<double>(width) / 16.0 + 4.0 + 2.0) / 2.0;
}

// The root, the reciprocal, x * inverse, offset + weight, the last product.
constexpr double rmsnorm_relative(int64_t width) {
  return accumulated(mean_square_root_roundings(width) + 5.0);
}

// The root, x / root, * weight, the SiLU, * SiLU.
constexpr double gated_rmsnorm_relative(int64_t width) {
  return accumulated(mean_square_root_roundings(width) + 3.0 + kSiluRoundings + 1.0);
}

// The SiLU and the product with `up`.
inline constexpr double kSwigluRelative = accumulated(kSiluRoundings + 1.0);

// Relative to |a cos| + |b sin|: the cosine and the sine are rounded, one product is rounded, and
// the fused sum is rounded: at most three on either term.
inline constexpr double kRopeCondition = accumulated(3.0);

// Computed in float64 with functions within 4e-16, four of them at most, and rounded once.
inline constexpr double kGdnGatesRelative = kFloatUnit * (1.0 + 0x1p-20);

// log_sum_exp: n additions and exponentials in float64; absolute, because the sum is at least 1.
constexpr double log_sum_exp_absolute(int64_t n, double largest) {
  return (static_cast<double>(n) + 8.0) * 0x1p-53 + (largest < 0 ? -largest : largest) * 0x1p-52;
}

}  // namespace lockstep::tolerance
