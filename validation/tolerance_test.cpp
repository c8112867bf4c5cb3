#include "validation/tolerance.h"

#include <gtest/gtest.h>

namespace lockstep::tolerance {
namespace {

// The frozen list. A looser number is a decision: it needs a numerical reason in tolerance.h and
// its line here.
TEST(Tolerance, FrozenList) {
  EXPECT_EQ(kFp32RelL2, 2e-5);
  EXPECT_EQ(kFp32VisionRelL2, 1e-6);
  EXPECT_EQ(kBf16VisionRelL2, 1e-2);
  EXPECT_EQ(kFp32ResizedRelL2, 1e-4);
  EXPECT_EQ(kResizedCodeShare, 0.005);
  EXPECT_EQ(kFp32Margin, 1e-3);
  EXPECT_EQ(kFp32Logprob, 1e-3);
  EXPECT_EQ(kBf16NoiseFactor, 3.0);
  EXPECT_EQ(kBf16CosFactor, 9.0);
  EXPECT_EQ(kBf16Floor, 1e-6);
  EXPECT_EQ(kBf16LogitSigmas, 4.0);
  EXPECT_EQ(kBf16MarginRms, 2.0);
  EXPECT_EQ(kMinPositions, 16);
  EXPECT_EQ(kMinGreedySteps, 32);
  EXPECT_EQ(kMinMutationScore, 0.95);
}

TEST(Tolerance, LogitSigmaFollowsItsFormula) {
  // 2 * 16 * (3 * 0.01) / sqrt(256)
  EXPECT_DOUBLE_EQ(bf16_logit_sigma(2.0, 16.0, 0.01, 256), 0.06);
  EXPECT_DOUBLE_EQ(bf16_logit_sigma(2.0, 16.0, 0.0, 256), 2 * 16 * 1e-6 / 16);
  EXPECT_EQ(bf16_logit_sigma(0.0, 16.0, 0.01, 256), 0.0);
}

}  // namespace
}  // namespace lockstep::tolerance
