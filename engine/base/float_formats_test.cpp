#include "engine/base/float_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/philox.h"

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}

// A narrow format described by its fields alone: the definition that the conversions are held to.
struct Format {
  const char* name;
  int n_exponent_bits;
  int n_mantissa_bits;
  uint32_t largest_finite;  // code
  uint32_t overflow;        // code that values beyond the largest finite one take
  float (*widen)(uint32_t);
  uint32_t (*narrow)(float);
};

const Format kFormats[] = {
    {"bf16", 8, 7, 0x7f7f, 0x7f80,
     [](uint32_t code) { return bf16_to_float(static_cast<uint16_t>(code)); },
     [](float value) { return uint32_t{float_to_bf16(value)}; }},
    {"f16", 5, 10, 0x7bff, 0x7c00,
     [](uint32_t code) { return f16_to_float(static_cast<uint16_t>(code)); },
     [](float value) { return uint32_t{float_to_f16(value)}; }},
    {"e4m3", 4, 3, 0x7e, 0x7e,
     [](uint32_t code) { return e4m3_to_float(static_cast<uint8_t>(code)); },
     [](float value) { return uint32_t{float_to_e4m3(value)}; }},
    {"e2m1", 2, 1, 0x7, 0x7, [](uint32_t code) { return kE2m1Values[code]; },
     [](float value) { return uint32_t{float_to_e2m1(value)}; }},
};

double defined_value(const Format& format, uint32_t code) {
  const uint32_t exponent = (code >> format.n_mantissa_bits) & ((1u << format.n_exponent_bits) - 1);
  const uint32_t mantissa = code & ((1u << format.n_mantissa_bits) - 1);
  const int bias = (1 << (format.n_exponent_bits - 1)) - 1;
  const uint32_t hidden = exponent == 0 ? 0 : 1u << format.n_mantissa_bits;
  const int scale = std::max<int>(static_cast<int>(exponent), 1) - bias - format.n_mantissa_bits;
  return std::ldexp(static_cast<double>(hidden + mantissa), scale);
}

uint32_t sign_bit(const Format& format) {
  return 1u << (format.n_exponent_bits + format.n_mantissa_bits);
}

class NarrowFormat : public ::testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(All, NarrowFormat, ::testing::ValuesIn(kFormats),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(NarrowFormat, EveryFiniteCodeWidensToItsDefinitionAndComesBack) {
  const Format& format = GetParam();
  for (uint32_t code = 0; code <= format.largest_finite; ++code) {
    const auto value = static_cast<float>(defined_value(format, code));
    const uint32_t negative = code | sign_bit(format);
    ASSERT_EQ(bits_of(format.widen(code)), bits_of(value)) << code;
    ASSERT_EQ(bits_of(format.widen(negative)), bits_of(-value)) << code;
    ASSERT_EQ(format.narrow(value), code);
    ASSERT_EQ(format.narrow(-value), negative);
  }
}

// Between every two neighbours: just below the midpoint, the midpoint, just above it.
TEST_P(NarrowFormat, EveryMidpointGoesToTheEvenCode) {
  const Format& format = GetParam();
  for (uint32_t code = 0; code < format.largest_finite; ++code) {
    const double exact = (defined_value(format, code) + defined_value(format, code + 1)) / 2;
    const auto middle = static_cast<float>(exact);
    ASSERT_EQ(double{middle}, exact) << "midpoints are float32 values";
    const uint32_t even = (code & 1u) == 0 ? code : code + 1;
    for (const uint32_t sign : {0u, sign_bit(format)}) {
      const float factor = sign == 0 ? 1.0f : -1.0f;
      ASSERT_EQ(format.narrow(factor * middle), even | sign) << code;
      ASSERT_EQ(format.narrow(factor * std::nextafter(middle, 0.0f)), code | sign) << code;
      ASSERT_EQ(format.narrow(factor * std::nextafter(middle, kInfinity)), (code + 1) | sign);
    }
  }
}

TEST_P(NarrowFormat, OverflowStartsHalfAStepAboveTheLargest) {
  const Format& format = GetParam();
  const double largest = defined_value(format, format.largest_finite);
  const double step = largest - defined_value(format, format.largest_finite - 1);
  const auto tie = static_cast<float>(largest + step / 2);
  EXPECT_EQ(format.narrow(std::nextafter(tie, 0.0f)), format.largest_finite);
  for (const float value : {tie, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(format.narrow(value), format.overflow);
    EXPECT_EQ(format.narrow(-value), format.overflow | sign_bit(format));
  }
}

TEST_P(NarrowFormat, TinyValuesGoToSignedZero) {
  const Format& format = GetParam();
  const auto half_step = static_cast<float>(defined_value(format, 1) / 2);
  for (const float value : {0.0f, half_step, std::nextafter(half_step, 0.0f)}) {
    EXPECT_EQ(format.narrow(value), 0u);
    EXPECT_EQ(format.narrow(-value), sign_bit(format));
  }
  EXPECT_EQ(format.narrow(std::nextafter(half_step, 1.0f)), 1u);
}

// Random bit patterns: the chosen code is at least as near as its neighbours, and rounding is
// idempotent and monotonic.
TEST_P(NarrowFormat, RandomValuesGoToTheNearestCode) {
  const Format& format = GetParam();
  PhiloxStream stream(3);
  for (int i = 0; i < 300000; ++i) {
    const float value = std::fabs(std::bit_cast<float>(stream.next_u32()));
    if (std::isnan(value) || value > format.widen(format.largest_finite)) continue;
    const uint32_t code = format.narrow(value);
    ASSERT_LE(code, format.largest_finite);
    const double error = std::fabs(defined_value(format, code) - double{value});
    if (code > 0) {
      ASSERT_LE(error, std::fabs(defined_value(format, code - 1) - double{value})) << value;
    }
    if (code < format.largest_finite) {
      ASSERT_LE(error, std::fabs(defined_value(format, code + 1) - double{value})) << value;
    }
    ASSERT_EQ(format.narrow(format.widen(code)), code);
  }
}

TEST(Bf16, NanAndInfinityStayForEveryCode) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = bf16_to_float(static_cast<uint16_t>(code));
    EXPECT_EQ(std::isnan(value), (code & 0x7fffu) > 0x7f80u);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(round_to_bf16(value)));
    } else {
      EXPECT_EQ(bits_of(round_to_bf16(value)), bits_of(value));
    }
  }
  // A NaN whose payload lies in the low half alone must not become infinity.
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7f800001u))));
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0xff80ffffu))));
  EXPECT_TRUE(std::isnan(round_to_bf16(std::bit_cast<float>(0x7fffffffu))));
}

TEST(F16, NanAndInfinityStayForEveryCode) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = f16_to_float(static_cast<uint16_t>(code));
    const uint32_t magnitude = code & 0x7fffu;
    EXPECT_EQ(std::isnan(value), magnitude > 0x7c00u);
    EXPECT_EQ(std::isinf(value), magnitude == 0x7c00u);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value))));
    } else {
      EXPECT_EQ(float_to_f16(value), code);
    }
  }
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(E4m3, NanCodesAndRange) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    EXPECT_EQ(std::isnan(value), code == 0x7f || code == 0xff);
    EXPECT_EQ(e4m3_is_nan(static_cast<uint8_t>(code)), std::isnan(value));
    EXPECT_FALSE(std::isinf(value));
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(float_to_e4m3(kNan), 0x7f);
  EXPECT_EQ(float_to_e4m3(-kNan), 0xff);
  EXPECT_EQ(float_to_e4m3(464.0f), 0x7e);
}

TEST(E2m1, TableOfValues) {
  const float magnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (size_t code = 0; code < 8; ++code) {
    EXPECT_EQ(bits_of(kE2m1Values[code]), bits_of(magnitudes[code]));
    EXPECT_EQ(bits_of(kE2m1Values[code + 8]), bits_of(-magnitudes[code]));
  }
}

TEST(E2m1DeathTest, NanIsAProgrammerError) {
  EXPECT_DEATH(float_to_e2m1(kNan), "internal error");
}

// A planted fault: truncation agrees at codes and must differ at midpoints above odd codes.
TEST(FormatsMutant, TruncationIsFound) {
  const auto truncated = [](float value) { return static_cast<uint16_t>(bits_of(value) >> 16); };
  int differences = 0;
  for (uint32_t code = 0x3f81; code < 0x4000; code += 2) {
    const float middle = std::bit_cast<float>((code << 16) | 0x8000u);
    differences += truncated(middle) != float_to_bf16(middle) ? 1 : 0;
  }
  EXPECT_EQ(differences, 64);
}

}  // namespace
}  // namespace lockstep
