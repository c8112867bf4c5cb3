#include "engine/ops/common/tolerance.h"

#include <gtest/gtest.h>

namespace lockstep::tolerance {
namespace {

// The frozen list of what the op bounds count. A looser number is a decision: it needs a numerical
// reason in tolerance.h and its line here.
TEST(OpTolerance, FrozenList) {
  EXPECT_EQ(kFloatUnit, 0x1p-24);
  EXPECT_EQ(kBf16Unit, 0x1p-8);
  EXPECT_EQ(kSecondOrder, 1.01);
  EXPECT_EQ(kExpUlps, 2.0);
  EXPECT_EQ(kExpRoundings, 4.0);
  EXPECT_EQ(kSiluRoundings, 6.0);
  EXPECT_EQ(kSiluFlushed, 2.7e-37);
  EXPECT_EQ(kSiluSlope, 1.1);
  EXPECT_EQ(kSwigluRelative, accumulated(7));
  EXPECT_EQ(kRopeCondition, accumulated(3));
  EXPECT_EQ(kWeightedEmbeddingCondition, accumulated(4));
  EXPECT_EQ(kGdnGatesRelative, kFloatUnit * (1.0 + 0x1p-20));
}

// Counts of roundings, at one shape each: a lane's chain, the tree, and what follows.
TEST(OpTolerance, CountsFollowTheOrderOfTheSums) {
  EXPECT_EQ(rmsnorm_relative(256), accumulated((16 + 4 + 2) / 2.0 + 5));
  EXPECT_EQ(gated_rmsnorm_relative(128), accumulated((8 + 4 + 2) / 2.0 + 10));
  EXPECT_EQ(linear_bound(256, 7.0, 3.0, Rounding::none), accumulated(16 + 5) * 3.0);
  EXPECT_EQ(lane_dot_roundings(128), 12.0);
  EXPECT_EQ(attention_score_error(64, 2.0), 9 * kFloatUnit * 2.0);
  EXPECT_EQ(attention_weight_roundings(256, 3), 256 + 20 + 2 * 6 * 3 + 1);
  EXPECT_EQ(hadamard_bound(64, 1.0), kSecondOrder * 8 * kFloatUnit);
  EXPECT_EQ(gdn_normalise_roundings(64), 9.0);
  EXPECT_EQ(gdn_pair_roundings(64), 8 + 18 + 4 + 2);
}

TEST(OpTolerance, OutputRoundingAddsHalfAStep) {
  EXPECT_EQ(with_output_rounding(4.0, 0.5, Rounding::none), 0.5);
  EXPECT_EQ(with_output_rounding(4.0, 0.5, Rounding::bf16), 0.5 + 4.5 * kBf16Unit + kBf16Tiny);
}

}  // namespace
}  // namespace lockstep::tolerance
