#include "engine/base/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/base/median.h"
#include "engine/base/philox.h"

namespace lockstep {
namespace {

constexpr double kRelative = 4e-16;  // what math.h promises
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Uniform in [low, high) with 53 bits.
double uniform(PhiloxStream& stream, double low, double high) {
  const uint64_t bits = uint64_t{stream.next_u32()} << 21 ^ stream.next_u32() >> 11;
  return low + (high - low) * (static_cast<double>(bits) * 0x1p-53);
}

double relative_error(double got, long double want) {
  return static_cast<double>(std::fabs((static_cast<long double>(got) - want) / want));
}

TEST(ExpF64, IsAccurate) {
  PhiloxStream stream(1);
  double worst = 0.0;
  for (int i = 0; i < 400000; ++i) {
    const double range = i % 4 == 0 ? 708.0 : i % 4 == 1 ? 20.0 : i % 4 == 2 ? 1.0 : 1e-6;
    const double x = uniform(stream, -range, range);
    worst = std::fmax(worst, relative_error(exp_f64(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, kRelative);
  RecordProperty("worst_relative_error", std::to_string(worst * 1e16) + "e-16");
}

TEST(ExpF64, SpecialValues) {
  EXPECT_EQ(exp_f64(0.0), 1.0);
  EXPECT_EQ(exp_f64(-0.0), 1.0);
  EXPECT_EQ(exp_f64(kInfinity), kInfinity);
  EXPECT_EQ(exp_f64(-kInfinity), 0.0);
  EXPECT_EQ(exp_f64(710.0), kInfinity);
  EXPECT_EQ(exp_f64(-746.0), 0.0);
  EXPECT_TRUE(std::isfinite(exp_f64(709.78)));
  EXPECT_TRUE(std::isnan(exp_f64(kNan)));
}

TEST(ExpF64, ReachesSubnormals) {
  for (double x = -745.0; x < -708.0; x += 0.37) {
    const auto want = static_cast<double>(std::exp(static_cast<long double>(x)));
    EXPECT_NEAR(exp_f64(x), want, want * kRelative + 0x1p-1074) << x;
  }
}

TEST(LogF64, IsAccurate) {
  PhiloxStream stream(2);
  double worst = 0.0;
  for (int i = 0; i < 400000; ++i) {
    double x = 1.0;
    if (i % 3 == 0) x = uniform(stream, 0.5, 2.0);
    if (i % 3 == 1) x = 1.0 + uniform(stream, -1e-5, 1e-5);
    if (i % 3 == 2) x = std::ldexp(uniform(stream, 0.5, 1.0), 900 - static_cast<int>(i % 1800));
    if (x == 1.0) continue;
    worst = std::fmax(worst, relative_error(log_f64(x), std::log(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, kRelative);
  RecordProperty("worst_relative_error", std::to_string(worst * 1e16) + "e-16");
}

TEST(LogF64, ExactAndNeighbouringValues) {
  EXPECT_EQ(log_f64(1.0), 0.0);
  EXPECT_EQ(log_f64(2.0), std::log(2.0));
  EXPECT_LT(relative_error(log_f64(std::nextafter(1.0, 2.0)), 0x1p-52L), kRelative);
  EXPECT_LT(relative_error(log_f64(std::nextafter(1.0, 0.0)), -0x1p-53L), kRelative);
}

TEST(LogF64DeathTest, RefusesWhatHasNoLogarithm) {
  EXPECT_DEATH(log_f64(0.0), "internal error");
  EXPECT_DEATH(log_f64(-1.0), "internal error");
  EXPECT_DEATH(log_f64(kNan), "internal error");
}

double sincos_error(double x) {
  double sine = 0.0;
  double cosine = 0.0;
  sincos_f64(x, &sine, &cosine);
  const double sine_error = relative_error(sine, std::sin(static_cast<long double>(x)));
  return std::fmax(sine_error, relative_error(cosine, std::cos(static_cast<long double>(x))));
}

TEST(SincosF64, IsAccurate) {
  PhiloxStream stream(3);
  double worst = 0.0;
  for (int i = 0; i < 400000; ++i) {
    const double range = i % 3 == 0 ? 0x1p20 : i % 3 == 1 ? 300.0 : 1.0;
    worst = std::fmax(worst, sincos_error(uniform(stream, -range, range)));
  }
  EXPECT_LT(worst, kRelative);
  RecordProperty("worst_relative_error", std::to_string(worst * 1e16) + "e-16");
}

// Where one of the two is nearly zero, the reduction by pi / 2 cancels most bits.
TEST(SincosF64, IsAccurateBesideMultiplesOfHalfPi) {
  double worst = 0.0;
  for (int n = 1; n < 667000; n += n < 2000 ? 1 : 97) {
    const auto x = static_cast<double>(n * 1.57079632679489661923132169163975144L);
    worst = std::fmax(worst, sincos_error(x));
    worst = std::fmax(worst, sincos_error(static_cast<double>(static_cast<float>(x))));
    worst = std::fmax(worst, sincos_error(std::nextafter(x, 0.0)));
  }
  EXPECT_LT(worst, kRelative);
  RecordProperty("worst_relative_error", std::to_string(worst * 1e16) + "e-16");
}

TEST(SincosF64, ExactValuesSymmetryAndLimits) {
  double sine = 1.0;
  double cosine = 0.0;
  sincos_f64(0.0, &sine, &cosine);
  EXPECT_EQ(sine, 0.0);
  EXPECT_EQ(cosine, 1.0);
  PhiloxStream stream(4);
  for (int i = 0; i < 1000; ++i) {
    const double x = uniform(stream, 0.0, 0x1p20);
    double negative_sine = 0.0;
    double negative_cosine = 0.0;
    sincos_f64(x, &sine, &cosine);
    sincos_f64(-x, &negative_sine, &negative_cosine);
    EXPECT_EQ(negative_sine, -sine);
    EXPECT_EQ(negative_cosine, cosine);
    EXPECT_LE(std::fabs(sine), 1.0);
    EXPECT_LE(std::fabs(cosine), 1.0);
  }
  EXPECT_LT(sincos_error(0x1p20), kRelative);
}

TEST(SincosF64DeathTest, RefusesAnglesOutOfRange) {
  double sine = 0.0;
  double cosine = 0.0;
  EXPECT_DEATH(sincos_f64(0x1p21, &sine, &cosine), "internal error");
  EXPECT_DEATH(sincos_f64(kNan, &sine, &cosine), "internal error");
}

// The error of the logarithm is multiplied by |exponent log base| on its way through exp.
TEST(PowF64, IsAccurateForRotaryFrequencies) {
  for (const double base : {1e4, 1e6, 1e7}) {
    for (int i = 0; i < 128; ++i) {
      const double exponent = -i / 128.0;
      const long double want = std::pow(static_cast<long double>(base), exponent);
      const double growth = 1.0 + std::fabs(exponent * std::log(base));
      EXPECT_LT(relative_error(pow_f64(base, exponent), want), kRelative * growth);
    }
  }
  EXPECT_EQ(pow_f64(1e7, 0.0), 1.0);
  EXPECT_EQ(pow_f64(1.0, 123.0), 1.0);
}

// The bits that every machine must get: a change of a constant, of the order of operations or of
// the compiler's contraction shows here.
TEST(MathF64, GoldenBits) {
  double sine = 0.0;
  double cosine = 0.0;
  sincos_f64(12345.678, &sine, &cosine);
  EXPECT_EQ(std::bit_cast<uint64_t>(exp_f64(-1.2345)), 0x3fd29f6b7bfe469du);
  EXPECT_EQ(std::bit_cast<uint64_t>(log_f64(12345.678)), 0x4022d79559791e31u);
  EXPECT_EQ(std::bit_cast<uint64_t>(sine), 0xbfe687d5890974a5u);
  EXPECT_EQ(std::bit_cast<uint64_t>(cosine), 0x3fe6b94c3bbe24b8u);
  EXPECT_EQ(std::bit_cast<uint64_t>(pow_f64(1e7, -0.40625)), 0x3f577a7d87ee61aeu);
}

TEST(Median, OfOddEvenAndNone) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
  EXPECT_TRUE(std::isnan(median({})));
}

}  // namespace
}  // namespace lockstep
