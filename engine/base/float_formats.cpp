#include "engine/base/float_formats.h"

#include <cmath>

#include "engine/base/error.h"

namespace lockstep {
namespace {

// Magnitude of `value` in units of 2^exponent, rounded to nearest, ties to even. `value` must be
// small enough for the result to fit: callers saturate first.
uint32_t round_to_step(float value, int exponent) {
  const double scaled = std::ldexp(static_cast<double>(value), -exponent);
  const double down = std::floor(scaled);
  const double rest = scaled - down;
  auto code = static_cast<uint32_t>(down);
  if (rest > 0.5 || (rest == 0.5 && (code & 1u) != 0)) ++code;
  return code;
}

}  // namespace

float f16_to_float(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal in binary16: steps of 2^-24
    return static_cast<uint16_t>(sign | round_to_step(std::bit_cast<float>(magnitude), -24));
  }
  const uint32_t rebiased = magnitude - (112u << 23);
  return static_cast<uint16_t>(sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13));
}

float e4m3_to_float(uint8_t bits) {
  const uint32_t sign = (bits & 0x80u) << 24;
  const uint32_t exponent = (bits >> 3) & 0xfu;
  const uint32_t mantissa = bits & 0x7u;
  if (e4m3_is_nan(bits)) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  return sign != 0 ? -magnitude : magnitude;
}

uint8_t float_to_e4m3(float value) {
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80u : 0u);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7fu);
  const float magnitude = std::fabs(value);
  if (magnitude >= 448.0f) return static_cast<uint8_t>(sign | 0x7eu);
  if (magnitude < 0x1p-6f) return static_cast<uint8_t>(sign | round_to_step(magnitude, -9));
  const uint32_t rebiased = std::bit_cast<uint32_t>(magnitude) - (120u << 23);
  const uint32_t code = (rebiased + 0x7ffffu + ((rebiased >> 20) & 1u)) >> 20;
  return static_cast<uint8_t>(sign | (code > 0x7eu ? 0x7eu : code));
}

uint8_t float_to_e2m1(float value) {
  LOCKSTEP_CHECK(!std::isnan(value));
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 8u : 0u);
  const float magnitude = std::fabs(value);
  // Midpoints between neighbours; a tie goes to the even code.
  constexpr float kMidpoints[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  uint8_t code = 0;
  for (uint8_t i = 0; i < 7; ++i) {
    if (magnitude > kMidpoints[i] || (magnitude == kMidpoints[i] && (i & 1u) != 0)) {
      code = static_cast<uint8_t>(i + 1);
    }
  }
  return static_cast<uint8_t>(sign | code);
}

}  // namespace lockstep
