#include "engine/ops/residual_add/residual_add.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ops/common/op_test_util.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr size_t kSize = 5003;

// Nearest bfloat16 by search among the two neighbours, ties to the even one: no shared code with
// the op.
float nearest_bf16(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent - 8, -133));
  return static_cast<float>(std::nearbyint(value / step) * step);
}

// A sum of two floats is exact enough in float64: rounding it again to float32 is rounding once.
float float_sum(float a, float b) {
  return static_cast<float>(double{a} + double{b});
}

TEST(ResidualAdd, IsTheCorrectlyRoundedSum) {
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    const std::vector<float> x = random_floats(51, kSize, 4.0f, rounding);
    const std::vector<float> y = random_floats(52, kSize, 0.5f, rounding);
    std::vector<float> out = x;
    out.push_back(kGuard);
    residual_add(out.data(), y.data(), kSize, rounding);
    for (size_t i = 0; i < kSize; ++i) {
      const float sum = float_sum(x[i], y[i]);
      ASSERT_EQ(out[i], rounding == Rounding::none ? sum : nearest_bf16(double{sum})) << i;
    }
    EXPECT_EQ(out[kSize], kGuard);
  }
}

TEST(ResidualAdd, TiesGoToEven) {
  // 256 + 1 and 258 + 1 lie midway between the bfloat16 neighbours, which are 2 apart.
  std::vector<float> x = {256.0f, 258.0f, -256.0f, -258.0f};
  const std::vector<float> y = {1.0f, 1.0f, -1.0f, -1.0f};
  residual_add(x.data(), y.data(), 4, Rounding::bf16);
  EXPECT_EQ(x, (std::vector<float>{256.0f, 260.0f, -256.0f, -260.0f}));
}

TEST(ResidualAdd, XMayBeY) {
  std::vector<float> x = {1.0f, 2.5f, -3.0f};
  residual_add(x.data(), x.data(), 3, Rounding::bf16);
  EXPECT_EQ(x, (std::vector<float>{2.0f, 5.0f, -6.0f}));
}

TEST(SumPartials, RoundsEachPartAndThenTheSum) {
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    const std::vector<float> p0 = random_floats(53, kSize, 2.0f);
    const std::vector<float> p1 = random_floats(54, kSize, 2.0f);
    std::vector<float> out(kSize + 1, kGuard);
    sum_partials(p0.data(), p1.data(), out.data(), kSize, rounding);
    for (size_t i = 0; i < kSize; ++i) {
      const float sum = float_sum(nearest_bf16(double{p0[i]}), nearest_bf16(double{p1[i]}));
      const float want =
          rounding == Rounding::none ? float_sum(p0[i], p1[i]) : nearest_bf16(double{sum});
      ASSERT_EQ(out[i], want) << i;
    }
    EXPECT_EQ(out[kSize], kGuard);
  }
}

TEST(SumPartials, OutMayBeEitherPart) {
  const std::vector<float> p0 = random_floats(55, 100, 2.0f);
  const std::vector<float> p1 = random_floats(56, 100, 2.0f);
  std::vector<float> want(100);
  sum_partials(p0.data(), p1.data(), want.data(), 100, Rounding::bf16);
  std::vector<float> first = p0;
  sum_partials(first.data(), p1.data(), first.data(), 100, Rounding::bf16);
  std::vector<float> second = p1;
  sum_partials(p0.data(), second.data(), second.data(), 100, Rounding::bf16);
  EXPECT_TRUE(same_bits(first, want));
  EXPECT_TRUE(same_bits(second, want));
}

TEST(SumPartials, NanInEitherPartGivesNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> p0 = {nan, 1.0f, 1.0f};
  const std::vector<float> p1 = {1.0f, nan, 1.0f};
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    std::vector<float> out(3);
    sum_partials(p0.data(), p1.data(), out.data(), 3, rounding);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
    EXPECT_EQ(out[2], 2.0f);
  }
}

// A planted fault: the parts added before they are rounded give other bits somewhere.
TEST(SumPartialsMutant, RoundingTheSumOnlyIsFound) {
  std::vector<float> p0 = random_floats(57, kSize, 2.0f);
  const std::vector<float> p1 = random_floats(58, kSize, 2.0f);
  std::vector<float> want(kSize);
  sum_partials(p0.data(), p1.data(), want.data(), kSize, Rounding::bf16);
  residual_add(p0.data(), p1.data(), kSize, Rounding::bf16);
  EXPECT_FALSE(same_bits(p0, want));
}

}  // namespace
}  // namespace lockstep
