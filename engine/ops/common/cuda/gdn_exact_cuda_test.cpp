// The exact cases of receipts, so that planted faults of the kernels show that they can fail.
#include "engine/ops/common/cuda/gdn_exact.h"

#include <gtest/gtest.h>

#include "engine/ops/common/cuda/exact_test_util.h"

namespace lockstep {
namespace {

using namespace op_test;

class GdnExactCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
  static std::string difference(GdnExact op) {
    return exact_difference(gdn_exact_cases(op),
                            [op](size_t index, uint64_t seed, Device& device, Stream& stream) {
                              return gdn_exact_card(op, index, seed, device, stream);
                            });
  }
};

TEST_F(GdnExactCuda, CausalConv) {
  EXPECT_EQ(difference(GdnExact::causal_conv), "");
}

TEST_F(GdnExactCuda, GatedDelta) {
  EXPECT_EQ(difference(GdnExact::gated_delta), "");
}

TEST_F(GdnExactCuda, GatedRmsNorm) {
  EXPECT_EQ(difference(GdnExact::gated_rmsnorm), "");
}

TEST_F(GdnExactCuda, GdnGates) {
  EXPECT_EQ(difference(GdnExact::gdn_gates), "");
}

}  // namespace
}  // namespace lockstep
