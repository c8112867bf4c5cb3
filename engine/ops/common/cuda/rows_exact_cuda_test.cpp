// The exact cases of receipts, so that planted faults of the kernels show that they can fail.
#include "engine/ops/common/cuda/rows_exact.h"

#include <gtest/gtest.h>

#include "engine/ops/common/cuda/exact_test_util.h"
#include "engine/ops/common/cuda/vision_exact.h"
#include "engine/ops/sample/cuda/sample_exact.h"
#include "engine/ops/verify/cuda/verify_exact.h"

namespace lockstep {
namespace {

using namespace op_test;

class RowsExactCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
  static std::string difference(VisionExact op) {
    return exact_difference(vision_exact_cases(op),
                            [op](size_t index, uint64_t seed, Device& device, Stream& stream) {
                              return vision_exact_card(op, index, seed, device, stream);
                            });
  }
};

TEST_F(RowsExactCuda, OpsWithTheBitsOfTheCpu) {
  for (const auto& [op, folder] : kRowsExactOps) {
    const auto card = [op = op](size_t index, uint64_t seed, Device& device, Stream& stream) {
      return rows_exact_card(op, index, seed, device, stream);
    };
    EXPECT_EQ(exact_difference(rows_exact_cases(op), card), "") << folder;
  }
}

TEST_F(RowsExactCuda, LayerNorm) {
  EXPECT_EQ(difference(VisionExact::layernorm), "");
}

TEST_F(RowsExactCuda, Sample) {
  EXPECT_EQ(exact_difference(sample_exact_cases(), sample_exact_card), "");
}

TEST_F(RowsExactCuda, Verify) {
  EXPECT_EQ(exact_difference(verify_exact_cases(), verify_exact_card), "");
}

TEST_F(RowsExactCuda, VisionAttention) {
  EXPECT_EQ(difference(VisionExact::vision_attention), "");
}

TEST_F(RowsExactCuda, WeightedEmbedding) {
  EXPECT_EQ(difference(VisionExact::weighted_embedding), "");
}

}  // namespace
}  // namespace lockstep
