#include "engine/ops/gelu/gelu.h"

#include <gtest/gtest.h>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

// Dense around 0, and out to where the tails vanish.
std::vector<float> inputs() {
  std::vector<float> x = random_floats(5, 4000, 4.0f);
  const std::vector<float> wide = random_floats(6, 4001, 16.0f);
  const std::vector<float> tiny = random_floats(7, 500, 1e-6f);
  x.insert(x.end(), wide.begin(), wide.end());
  x.insert(x.end(), tiny.begin(), tiny.end());
  for (const float value : {0.0f, 14.5f, -14.5f, 40.0f, -40.0f, 1e6f, -1e6f}) x.push_back(value);
  return x;
}

std::vector<float> run(std::vector<float> x, GeluKind kind, Rounding rounding, int n_threads = 1) {
  ThreadPool pool(n_threads);
  gelu(x.data(), static_cast<int64_t>(x.size()), kind, rounding, pool);
  return x;
}

double error_at(double x, double value, GeluKind kind) {
  if (kind == GeluKind::exact) {
    return tolerance::gelu_exact_error(x, 0.5 * std::erfc(std::fabs(x) / std::sqrt(2.0)), value);
  }
  const double exponent = -2.0 * std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
  return tolerance::gelu_tanh_error(exponent, 1.0 / (1.0 + std::exp(-exponent)), value);
}

double judge(const std::vector<float>& x, const std::vector<float>& out, GeluKind kind,
             Rounding rounding) {
  std::vector<double> want(x.size());
  gelu_oracle(x.data(), static_cast<int64_t>(x.size()), kind, want.data());
  std::vector<double> bound;
  for (size_t i = 0; i < x.size(); ++i) {
    bound.push_back(
        tolerance::with_output_rounding(want[i], error_at(x[i], want[i], kind), rounding));
  }
  return worst_ratio(out, want, bound);
}

TEST(Gelu, StaysWithinTheDerivedBound) {
  const std::vector<float> x = inputs();
  on_every_target([&](const std::string& target) {
    for (const GeluKind kind : {GeluKind::exact, GeluKind::tanh}) {
      for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
        EXPECT_LE(judge(x, run(x, kind, rounding), kind, rounding), 1.0)
            << target << " kind " << static_cast<int>(kind);
      }
    }
  });
}

TEST(Gelu, ThreadsInstructionSetsAndPlaceGiveTheSameBits) {
  std::vector<float> x = inputs();
  while (x.size() < 40000) x.insert(x.end(), x.begin(), x.begin() + 1000);
  for (const GeluKind kind : {GeluKind::exact, GeluKind::tanh}) {
    const std::vector<float> want = run(x, kind, Rounding::none);
    EXPECT_TRUE(same_bits(run(x, kind, Rounding::none, 2), want));
    on_every_target([&](const std::string& target) {
      EXPECT_TRUE(same_bits(run(x, kind, Rounding::none), want)) << target;
    });
    const std::vector<float> shifted = run({x.begin() + 3, x.begin() + 20}, kind, Rounding::none);
    EXPECT_TRUE(same_bits(shifted, std::span(want).subspan(3, 17)));
  }
}

TEST(Gelu, NanStays) {
  for (const GeluKind kind : {GeluKind::exact, GeluKind::tanh}) {
    const std::vector<float> out =
        run({1.0f, std::numeric_limits<float>::quiet_NaN(), 2.0f}, kind, Rounding::bf16);
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_FALSE(std::isnan(out[0]) || std::isnan(out[2]));
  }
}

TEST(GeluMutant, OneKindForTheOtherIsFound) {
  const std::vector<float> x = inputs();
  EXPECT_GT(judge(x, run(x, GeluKind::tanh, Rounding::none), GeluKind::exact, Rounding::none), 1.0);
  EXPECT_GT(judge(x, run(x, GeluKind::exact, Rounding::none), GeluKind::tanh, Rounding::none), 1.0);
}

TEST(GeluMutant, AFewUnitsMoreThanTheBoundAreFound) {
  const std::vector<float> x = random_floats(5, 100, 0.5f);
  std::vector<float> out = run(x, GeluKind::exact, Rounding::none);
  for (float& value : out) value *= 1.0f + 40.0f * 0x1p-23f;
  EXPECT_GT(judge(x, out, GeluKind::exact, Rounding::none), 1.0);
}

}  // namespace
}  // namespace lockstep
