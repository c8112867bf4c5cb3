// How far a float32 kernel may be from its float64 oracle, in one place. Every bound is first-order
// rounding analysis: a count of roundings times the unit roundoff times a condition sum that the test
// forms from the data; kSecondOrder covers the products of errors that the counts leave out.
#pragma once

#include <cmath>
#include <cstdint>

namespace lockstep {

inline constexpr double kUnitRoundoff = 0x1p-24;      // float32, round to nearest
inline constexpr double kBf16UnitRoundoff = 0x1p-8;   // bfloat16: 8 significant bits
inline constexpr double kSecondOrder = 1.01;
inline constexpr double kExpRoundings = 4;            // lanes exp: 2 ulp
inline constexpr double kSigmoidRoundings = kExpRoundings + 2;  // one addition and one division more

// A product's share of a lane dot goes through length/16 fused additions and 4 levels of the tree.
inline constexpr double lane_dot_roundings(int64_t length) {
  return static_cast<double>(length) / 16 + 4;
}

// ---- attention ----

// Relative error of one softmax weight before normalising, without the error of its score: chain of at
// most one segment of FMAs in numerator, lane sum in the denominator, and for every merge one
// exponential, one product and one addition in both; then one division.
inline constexpr double attention_weight_roundings(int64_t segment, int64_t n_segments) {
  return static_cast<double>(segment) + (static_cast<double>(segment) / 16 + 4) +
         2 * (kExpRoundings + 2) * static_cast<double>(n_segments) + 1;
}
// Absolute error of a score, for condition = |scale| * sum |q_d| |k_d|: the dot and the scaling.
inline constexpr double attention_score_error(int64_t head_dim, double condition) {
  return (lane_dot_roundings(head_dim) + 1) * kUnitRoundoff * condition;
}

// ---- hadamard ----

// One addition a stage, one product with a rounded factor: for condition = sum |x| / sqrt(width).
inline double hadamard_bound(int64_t width, double condition) {
  return kSecondOrder * (std::log2(static_cast<double>(width)) + 2) * kUnitRoundoff * condition;
}

// ---- causal_conv ----

inline constexpr double kSiluSlope = 1.1;     // largest |silu'|
inline constexpr double kSiluFlush = 3e-37;   // silu(x) where exp(-x) overflows float32
// condition = sum |w| |m|: four FMAs, then the slope of silu, then its own roundings.
inline constexpr double causal_conv_bound(double condition, double value) {
  return kSecondOrder * kUnitRoundoff *
             (4 * kSiluSlope * condition + kSigmoidRoundings * (value < 0 ? -value : value)) +
         kSiluFlush;
}

// ---- gated_delta ----

// Relative error of a normalised q or k: half of the lane dot's, one for the epsilon, one root, two
// divisions and the rounded sqrt(dk).
inline constexpr double gdn_normalise_roundings(int64_t dk) {
  return lane_dot_roundings(dk) / 2 + 5;
}
// Relative error of (kn_i . kn_j) D_ij: the dot, both factors, the exponential, two products.
inline constexpr double gdn_pair_roundings(int64_t dk) {
  return lane_dot_roundings(dk) + 2 * gdn_normalise_roundings(dk) + kExpRoundings + 2;
}

}  // namespace lockstep
