#include "validation/tolerance.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "validation/oracle.h"

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
  EXPECT_EQ(kFp32Noise, 2e-5 / 3);
  EXPECT_EQ(kBf16FinalNormNoise, 0.0175);
  EXPECT_EQ(kBf16LocalNoise, 0.0099);
  EXPECT_EQ(kF16NoiseShare, 0.125);
  EXPECT_EQ(kW8NoiseFactor, 3.0);
  EXPECT_EQ(kW4NoiseFactor, 30.0);
  EXPECT_EQ(kEvenSpread, 8.0);
  EXPECT_EQ(kTypicalLogitScale, 3.5);
  EXPECT_EQ(kMinPositions, 16);
  EXPECT_EQ(kMinGreedySteps, 32);
  EXPECT_EQ(kMinMutationScore, 0.95);
}

// The golden oracle's own record, worst prompt: the numbers are measured, not chosen.
TEST(Tolerance, Bf16NoiseIsTheOraclesRecord) {
  double final_norm = 0;
  double first_layer = 0;
  for (const OraclePrompt& prompt : read_oracle(LOCKSTEP_GOLDEN_DIR "/oracle/public").prompts) {
    for (const auto& [tap, noise] : prompt.bf16_noise) {
      if (tap == "final_norm") final_norm = std::max(final_norm, noise.rel_l2);
      if (tap.starts_with("layers.0.")) first_layer = std::max(first_layer, noise.rel_l2);
    }
  }
  EXPECT_NEAR(final_norm, kBf16FinalNormNoise, 5e-5);
  EXPECT_NEAR(first_layer, kBf16LocalNoise, 5e-5);
}

TEST(Tolerance, LogitSigmaFollowsItsFormula) {
  // 2 * 16 * (3 * 0.01) / sqrt(256)
  EXPECT_DOUBLE_EQ(bf16_logit_sigma(2.0, 16.0, 0.01, 256), 0.06);
  EXPECT_DOUBLE_EQ(bf16_logit_sigma(2.0, 16.0, 0.0, 256), 2 * 16 * 1e-6 / 16);
  EXPECT_EQ(bf16_logit_sigma(0.0, 16.0, 0.01, 256), 0.0);
}

}  // namespace
}  // namespace lockstep::tolerance
