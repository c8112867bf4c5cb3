#include "engine/ops/argmax/argmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int64_t argmax_of(const std::vector<float>& x) {
  return argmax(x.data(), static_cast<int64_t>(x.size()));
}

double log_sum_exp_of(const std::vector<float>& x) {
  return log_sum_exp(x.data(), static_cast<int64_t>(x.size()));
}

TEST(Argmax, FindsThePlantedMaximumAtEveryPlace) {
  std::vector<float> x = random_floats(61, 300, 1.0f);
  for (size_t place = 0; place < x.size(); ++place) {
    const float kept = std::exchange(x[place], 2.0f);
    EXPECT_EQ(argmax_of(x), static_cast<int64_t>(place));
    x[place] = kept;
  }
}

TEST(Argmax, LowestIndexOnTies) {
  EXPECT_EQ(argmax_of({1.0f, 3.0f, 3.0f, 2.0f, 3.0f}), 1);
  EXPECT_EQ(argmax_of({0.0f, 0.0f}), 0);
  EXPECT_EQ(argmax_of({-0.0f, 0.0f}), 0);
  EXPECT_EQ(argmax_of({0.0f, -0.0f}), 0);
}

TEST(Argmax, OrdersInfinities) {
  EXPECT_EQ(argmax_of({-kInfinity, -kInfinity}), 0);
  EXPECT_EQ(argmax_of({-kInfinity, -1e38f}), 1);
  EXPECT_EQ(argmax_of({1.0f, kInfinity, kInfinity}), 1);
  EXPECT_EQ(argmax_of({5.0f}), 0);
}

TEST(Argmax, NanAnywhereGivesMinusOne) {
  for (size_t place = 0; place < 5; ++place) {
    std::vector<float> x = {1.0f, 2.0f, kInfinity, 2.0f, 1.0f};
    x[place] = kNan;
    EXPECT_EQ(argmax_of(x), -1) << place;
    x[place] = -kNan;
    EXPECT_EQ(argmax_of(x), -1) << place;
  }
  EXPECT_EQ(argmax_of({kNan}), -1);
}

long double reference_log_sum_exp(const std::vector<float>& x) {
  long double sum = 0.0L;
  const long double largest = *std::max_element(x.begin(), x.end());
  for (const float value : x) sum += std::exp(static_cast<long double>(value) - largest);
  return largest + std::log(sum);
}

double log_sum_exp_ratio(const std::vector<float>& x, double got) {
  const double largest = *std::max_element(x.begin(), x.end());
  const auto error = static_cast<double>(std::fabs(reference_log_sum_exp(x) - got));
  return error / tolerance::log_sum_exp_absolute(static_cast<int64_t>(x.size()), largest);
}

TEST(LogSumExp, StaysWithinTheDerivedBound) {
  for (const int64_t n : {1, 2, 100, 50000}) {
    for (const float scale : {0.1f, 20.0f, 5000.0f}) {
      const std::vector<float> x = random_floats(62, n, scale);
      EXPECT_LE(log_sum_exp_ratio(x, log_sum_exp_of(x)), 1.0) << n << " values, scale " << scale;
    }
  }
}

TEST(LogSumExp, IsExactForOneValue) {
  EXPECT_EQ(log_sum_exp_of({3.25f}), 3.25);
  EXPECT_EQ(log_sum_exp_of({-1e30f}), static_cast<double>(-1e30f));
}

TEST(LogSumExp, SpecialValues) {
  EXPECT_TRUE(std::isnan(log_sum_exp_of({1.0f, kNan})));
  EXPECT_EQ(log_sum_exp_of({1.0f, kInfinity}), double{kInfinity});
  EXPECT_EQ(log_sum_exp_of({-kInfinity, -kInfinity}), -double{kInfinity});
  EXPECT_EQ(log_sum_exp_of({-kInfinity, 2.0f}), 2.0);
}

// Planted faults: each must leave the bound.
TEST(LogSumExpMutant, ADroppedValueIsFound) {
  const std::vector<float> x = random_floats(63, 1000, 5.0f);
  EXPECT_GT(log_sum_exp_ratio(x, log_sum_exp(x.data() + 1, 999)), 1.0);
}

TEST(LogSumExpMutant, Float32SumIsFound) {
  const std::vector<float> x = random_floats(64, 1000, 5.0f);
  EXPECT_GT(log_sum_exp_ratio(x, static_cast<double>(static_cast<float>(log_sum_exp_of(x)))), 1.0);
}

}  // namespace
}  // namespace lockstep
