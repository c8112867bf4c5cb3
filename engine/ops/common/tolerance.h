// How far a float32 kernel may be from its float64 oracle, in one place. Every bound is first-order
// rounding analysis: a count of roundings times the unit roundoff times a condition sum that the
// test forms from the data; kSecondOrder covers the products of errors that the counts leave out.
#pragma once

#include <bit>
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

// CUDA, whatever the width: a thread adds up to 16 squares, then five steps over a warp and five
// over the warps. The rest as above.
inline constexpr double kBlockSumRoundings = 16.0 + 5.0 + 5.0;
inline constexpr double kRmsNormCudaRelative = accumulated((kBlockSumRoundings + 2.0) / 2.0 + 5.0);

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

// ---- Products with stored weights --------------------------------------------------------------

// A term goes through at most ceil(K/16) fused multiply-adds of its lane, four additions of the
// tree and the product with the row scale. `condition` is sum |x||w| |row_scale|.
inline double linear_bound(int64_t n_cols, double value, double condition, Rounding rounding) {
  const double steps = std::ceil(static_cast<double>(n_cols) / 16.0) + 5.0;
  return with_output_rounding(value, accumulated(steps) * condition, rounding);
}

// CUDA matrix units: a step adds k products and the sum so far after aligning them to the largest,
// so it loses at most one unit in the last place (2^-23) of that largest term for each of k + 1
// terms; no term exceeds the sum of magnitudes. k is 16 on sm80 and 4 on sm70, so a share of
// K / 8 columns loses at most (K / 8) (1 + 1/4) units. Then eight sums of warps, the factor and the
// row scale. Group scales add one rounding for 32 columns at the most often. Activations below
// 2^-31 of their row's largest are rounded: 2^-39 of it each, far below a unit of `condition`
// unless weights of the largest are zero, which kSecondOrder leaves room for.
inline double linear_cuda_bound(int64_t padded_cols, double value, double condition,
                                Rounding rounding) {
  const double steps = static_cast<double>(padded_cols) / 8.0 * 1.25 * 2.0 + 12.0;
  return with_output_rounding(value, accumulated(steps) * condition, rounding) + 0x1p-126;
}

// The bound that exp_vec documents, in units in the last place.
inline constexpr double kExpUlps = 2.0;

// ---- Attention, convolution and delta rule ------------------------------------------------------

inline constexpr double kSecondOrder = 1.01;
inline constexpr double kExpRoundings = 2 * kExpUlps;  // an ulp is at most two roundings

// A product's share of a lane dot goes through length/16 fused additions and 4 levels of the tree.
constexpr double lane_dot_roundings(int64_t length) {
  return static_cast<double>(length) / 16 + 4;
}

// ---- attention ----

// Relative error of one softmax weight before normalising, without the error of its score: chain of
// at most one segment of FMAs in numerator, lane sum in the denominator, and for every merge one
// exponential, one product and one addition in both; then one division.
constexpr double attention_weight_roundings(int64_t segment, int64_t n_segments) {
  return static_cast<double>(segment) + (static_cast<double>(segment) / 16 + 4) +
         2 * (kExpRoundings + 2) * static_cast<double>(n_segments) + 1;
}
// Absolute error of a score, for condition = |scale| * sum |q_d| |k_d|: the dot and the scaling.
constexpr double attention_score_error(int64_t head_dim, double condition) {
  return (lane_dot_roundings(head_dim) + 1) * kFloatUnit * condition;
}

// Attention on a card. What a route rounds; sums of k products in steps of the matrix unit lose
// what linear_cuda_bound says: a step of 16 at most 17 * 2 units, one of 4 at most 5 * 2.
struct AttentionCudaErrors {
  double score;       // float32 roundings of a score, of `condition`
  double key;         // relative error of a value of K as it is multiplied
  double weight;      // relative rounding of a softmax weight
  double value;       // relative error of a value of V as it is multiplied
  double tiny = 0.0;  // absolute error of both: what binary16 cannot hold
};
inline constexpr double kHalfUnit = 0x1p-11;  // largest relative error of one binary16 rounding
inline constexpr double kHalfTiny = 0x1p-25;  // the same below 2^-14, absolute
inline constexpr double kStep16 = 17 * 2;     // units of one step of the matrix unit
inline constexpr double kStep4 = 5 * 2;
inline constexpr double kAttentionFactors = 3;  // factor of the row and scale * log2(e)

// Lane sums of eight products, five levels of shuffles; INT8 codes times scales are rounded.
inline constexpr AttentionCudaErrors kAttentionSimple = {13 + kAttentionFactors, kFloatUnit, 0.0,
                                                         kFloatUnit};
// 256 products; INT8: four groups of 64 and the FMA with each one's scale.
inline constexpr AttentionCudaErrors kDecodeSm80Int8 = {4 * kStep16 + 4 + kAttentionFactors, 0.0,
                                                        kHalfUnit, kHalfUnit, kHalfTiny};
inline constexpr AttentionCudaErrors kSm80Fp16 = {16 * kStep16 + kAttentionFactors, 0.0, kHalfUnit,
                                                  0.0};
inline constexpr AttentionCudaErrors kSm80Bf16 = {16 * kStep16 + kAttentionFactors, 0.0, kBf16Unit,
                                                  0.0};
inline constexpr AttentionCudaErrors kDecodeSm70Int8 = {16 * kStep4 + 4 + kAttentionFactors, 0.0,
                                                        kHalfUnit, kHalfUnit, kHalfTiny};
inline constexpr AttentionCudaErrors kSm70Half = {64 * kStep4 + kAttentionFactors, 0.0, kHalfUnit,
                                                  0.0, kHalfTiny};
// K too is code * scale rounded to binary16.
inline constexpr AttentionCudaErrors kPrefillSm80Int8 = {
    16 * kStep16 + kAttentionFactors, kHalfUnit, kHalfUnit, kHalfUnit, kHalfTiny};

// Relative error of a weight beside those of its score and its rounding: the exponent's rounding
// counts (M - s) (in units of log 2), ex2.approx is within 2^-22; sums over 64 positions in the
// matrix unit, or one by one; then the merge.
constexpr double attention_cuda_weight_error(int64_t n_positions) {
  const double steps = static_cast<double>(n_positions) / 64 + 1;
  return (16 * kStep4 * steps + 8 * steps + 40) * kFloatUnit;
}
// A weight too small for binary16 next to the headroom of decode on sm_80.
inline constexpr double kAttentionCudaFlushed = 0x1p-33;

// ---- hadamard ----

// One addition a stage, one product with a rounded factor: for condition = sum |x| / sqrt(width).
inline double hadamard_bound(int64_t width, double condition) {
  const int stages = std::bit_width(static_cast<uint64_t>(width)) - 1;
  return kSecondOrder * (stages + 2) * kFloatUnit * condition;
}

// ---- causal_conv ----

inline constexpr double kSiluSlope = 1.1;  // largest |silu'|
// condition = sum |w| |m|: four FMAs, then the slope of silu, then its own roundings.
constexpr double causal_conv_bound(double condition, double value) {
  return kSecondOrder * kFloatUnit *
             (4 * kSiluSlope * condition + kSiluRoundings * (value < 0 ? -value : value)) +
         kSiluFlushed;
}

// ---- gated_delta ----

// Relative error of a normalised q or k: half of the lane dot's, one for the epsilon, one root, two
// divisions and the rounded sqrt(dk).
constexpr double gdn_normalise_roundings(int64_t dk) {
  return lane_dot_roundings(dk) / 2 + 5;
}
// Relative error of (kn_i . kn_j) D_ij: the dot, both factors, the exponential, two products.
constexpr double gdn_pair_roundings(int64_t dk) {
  return lane_dot_roundings(dk) + 2 * gdn_normalise_roundings(dk) + kExpRoundings + 2;
}

// CUDA matrix unit: a step adds 16 products and the sum so far, and loses at most one unit in the
// last place (2^-23) of the largest for each (see linear_cuda_bound): a sum of `length` terms, each
// as `n_products` products of bfloat16 parts. What the three parts leave out is below 2^-26. Sums
// that only an output needs use two parts of each factor: they leave out 3 * 2^-18 = 192 units, and
// save more than that of the steps counted here.
constexpr double gdn_matrix_roundings(int64_t length, int n_products) {
  return static_cast<double>((length + 15) / 16) * n_products * 17 * 2 + 1;
}

// ---- vision tower ------------------------------------------------------------------------------

// Error of a mean in 16 lanes: additions of the lane, the tree, the division.
constexpr double layernorm_mean_error(int64_t width, double mean_magnitude) {
  return (static_cast<double>(width) / 16 + 5) * kFloatUnit * mean_magnitude;
}

// CUDA: every term of the bound grows with the steps of a sum at most linearly; narrow rows have
// more of them on a card than in 16 lanes.
constexpr double layernorm_cuda_factor(int64_t width) {
  const double steps = static_cast<double>(width) / 16 + 5;
  return steps < kBlockSumRoundings + 1 ? (kBlockSumRoundings + 1) / steps : 1.0;
}

// All three in units of the standard deviation: the error of the mean, and |x - mean|. A shifted
// mean raises the variance by its square. Roundings: the difference (twice, the first halved by the
// root), the sum of squares, the root, the reciprocal and the product; then the fused sum with the
// bias.
constexpr double layernorm_error(int64_t width, double mean_error, double centred, double weight,
                                 double value) {
  const double size = weight < 0 ? -weight : weight;
  const double relative =
      accumulated(mean_square_root_roundings(width) + 5) + mean_error * mean_error / 2;
  return kSecondOrder *
         (size * (mean_error + centred * relative) + kFloatUnit * (value < 0 ? -value : value));
}

// The tail's polynomial: fitted to 3.2e-8, half a unit; Horner steps with a condition of 3.5, of
// which the last few count; t and its product; the exponential and its correction: at most 24 units
// in all. Then the difference from 1 and the product with x.
constexpr double gelu_exact_error(double x, double tail, double value) {
  const double size = x < 0 ? -x : x;
  return kSecondOrder * kFloatUnit * (24 * size * tail + 2 * (value < 0 ? -value : value)) +
         kFloatTiny * (size + 1);
}

// exponent = -2u, share = exp(-2u) / (1 + exp(-2u)). Six roundings of the exponent, magnified by
// it.
constexpr double gelu_tanh_error(double exponent, double share, double value) {
  const double size = exponent < 0 ? -exponent : exponent;
  return kSecondOrder * kFloatUnit * (value < 0 ? -value : value) *
             (share * (6 * size + kExpRoundings) + 2) +
         kSiluFlushed;
}

// Numerator and denominator both carry the scores' errors (the common maximum cancels), the rounded
// difference from it and the exponential; the numerator a chain over all keys, the denominator
// lanes.
constexpr double vision_attention_error(int64_t n_keys, double score_error, double score_range,
                                        double magnitude, double value) {
  const auto n = static_cast<double>(n_keys);
  const double weight = score_error + (score_range + kExpRoundings) * kFloatUnit;
  return kSecondOrder *
         (magnitude * (weight + n * kFloatUnit) + value * (weight + (n / 16 + 6) * kFloatUnit));
}

// CUDA, sm70. A score is one chain over the head. Old sums are rescaled once for every step of 32
// keys: an exponential and a product each; the exponents of all steps together make up the range.
// The denominator adds four keys a lane and step, then three steps over lanes.
constexpr double vision_attention_sm70_score_error(int head_dim, double condition) {
  return (head_dim + 1) * kFloatUnit * condition;
}
constexpr double vision_attention_sm70_error(int64_t n_keys, double score_error, double score_range,
                                             double magnitude, double value) {
  const auto n = static_cast<double>(n_keys);
  const double steps = n / 32 + 1;
  const double weight =
      2 * score_error + (2 * score_range + kExpRoundings * (steps + 1) + steps) * kFloatUnit;
  return kSecondOrder *
         (magnitude * (weight + n * kFloatUnit) + value * (weight + (n / 8 + 4) * kFloatUnit));
}

// CUDA, sm80. A step of the matrix unit loses up to 17 units of 2^-23 (linear_cuda_bound). Scores
// take steps of 16 values, the factor and the difference from the maximum, which is rounded in
// units of log 2; ex2.approx is within 2^-22. Values take two steps for 16 keys. A weight is two
// bfloat16: 2^-17.
constexpr double vision_attention_sm80_score_error(int head_dim, double condition) {
  return ((head_dim + 15) / 16 * 17 * 2 + 3) * kFloatUnit * condition;
}
constexpr double vision_attention_sm80_error(int64_t n_keys, double score_error, double score_range,
                                             double magnitude, double value) {
  const auto n = static_cast<double>(n_keys);
  const double steps = n / 64 + 1;
  const double weight = 2 * score_error + (3 * score_range + 4 * (steps + 1) + steps) * kFloatUnit;
  return kSecondOrder * (magnitude * (weight + 0x1p-17 + (n / 16 + 4) * 2 * 17 * 2 * kFloatUnit) +
                         value * (weight + (n / 4 + 4) * kFloatUnit));
}

// One product, three fused sums: for condition = sum |w r|.
inline constexpr double kWeightedEmbeddingCondition = accumulated(4.0);

// ---- sample on a card --------------------------------------------------------------------------

// How near a threshold may lie to a border between two candidates before the card and the CPU may
// choose differently, in units of the largest mass. The card rounds n masses to multiples of 2^-44
// and exponentials within 2^-49; the CPU adds n masses in float64; the threshold is one product.
constexpr double sample_border(int64_t n_candidates, double total) {
  const auto n = static_cast<double>(n_candidates);
  return n * 0x1p-44 + total * ((n + 4) * 0x1p-53 + 0x1p-48);
}

}  // namespace lockstep::tolerance
