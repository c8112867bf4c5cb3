// Scalar conversions between float32 and the narrow formats that checkpoints and caches store.
// Exact in the widening direction; round to nearest, ties to even, in the narrowing direction.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// NaN stays NaN (quiet); infinities stay.
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float round_to_bf16(float value) {
  return bf16_to_float(float_to_bf16(value));
}

float f16_to_float(uint16_t bits);
uint16_t float_to_f16(float value);

// E4M3FN (OCP FP8): bias 7, no infinities, 0x7f and 0xff are NaN, largest 448, subnormal step 2^-9.
float e4m3_to_float(uint8_t bits);
inline bool e4m3_is_nan(uint8_t bits) {
  return (bits & 0x7fu) == 0x7fu;
}
// Saturates at 448, as checkpoints are written; infinities too. NaN stays NaN.
uint8_t float_to_e4m3(float value);

// E2M1 (OCP FP4), low four bits: sign | 2 exponent bits | 1 mantissa bit.
inline constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
// Saturates at 6. NaN has no code: a programmer error.
uint8_t float_to_e2m1(float value);

}  // namespace lockstep
