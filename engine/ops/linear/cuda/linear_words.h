// How narrow codes lie in the 32-bit words of packed CUDA weights, and how they become pairs of
// binary16 without a conversion instruction. The same code runs in the kernels and in their tests.
//
// A pair holds column 2j in its low and 2j + 1 in its high half. Decoded values are exact; they
// carry a power of two that the kernel takes out of the finished sum:
//   E2M1  value * 2^-14, E4M3 value * 2^-8, E4M3 block scales value * 2^-8.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HOST_DEVICE inline
#endif

namespace lockstep {

// ---- E2M1: eight codes of four bits, columns k..k+7 --------------------------------------------
//
// Each half of the word holds four codes (even columns below, odd ones above) as sign and magnitude
// bits: c0 {15; 11..9}, c1 {12; 8..6}, c2 {13; 5..3}, c3 {14; 2..0}. Sign and magnitude of c2 and
// c3 come from two shifts; their exclusive or under one mask saves an instruction. So their bits
// are stored xor the bits of c0 and c1 that the other shift brings along.

inline constexpr int kE2m1SignBit[4] = {15, 12, 13, 14};
inline constexpr int kE2m1MagnitudeBit[4] = {9, 6, 3, 0};

inline uint32_t pack_e2m1_word(const uint8_t codes[8]) {
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) {
    const int half = 16 * (i % 2);
    const int place = i / 2;
    word |= static_cast<uint32_t>(codes[i] & 7u) << (kE2m1MagnitudeBit[place] + half);
    word |= static_cast<uint32_t>((codes[i] >> 3) & 1u) << (kE2m1SignBit[place] + half);
  }
  const uint32_t along = word & 0x0fc00fc0u;
  return word ^ ((along >> 4) & 0x00380038u) ^ ((along << 4) & 0x20002000u) ^
         ((along >> 8) & 0x00070007u) ^ ((along << 8) & 0x40004000u);
}

LOCKSTEP_HOST_DEVICE void decode_e2m1_word(uint32_t word, uint32_t pairs[4]) {
  pairs[0] = word & 0x8e008e00u;
  pairs[1] = (word << 3) & 0x8e008e00u;
  pairs[2] = ((word << 6) ^ (word << 2)) & 0x8e008e00u;
  pairs[3] = ((word << 9) ^ (word << 1)) & 0x8e008e00u;
}

// ---- E4M3: four codes of eight bits, columns k..k+3 --------------------------------------------
//
// Per half: c0 sign 15, magnitude 13..7; c1 sign 14, magnitude 6..0, stored xor the bits that the
// other shift brings along, as above.

inline uint32_t pack_e4m3_word(const uint8_t codes[4]) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    const int half = 16 * (i % 2);
    const int place = i / 2;
    word |= static_cast<uint32_t>(codes[i] & 0x7fu) << (half + (place == 0 ? 7 : 0));
    word |= static_cast<uint32_t>(codes[i] >> 7) << (half + (place == 0 ? 15 : 14));
  }
  word ^= (word >> 6) & 0x007e007eu;
  word ^= (word >> 6) & 0x00010001u;  // bit 6 in its stored form
  return word ^ ((word << 6) & 0x40004000u);
}

LOCKSTEP_HOST_DEVICE void decode_e4m3_word(uint32_t word, uint32_t pairs[2]) {
  pairs[0] = word & 0xbf80bf80u;
  pairs[1] = ((word << 7) ^ (word << 1)) & 0xbf80bf80u;
}

// ---- NVFP4 block scales: E4M3 without sign
// --------------------------------------------------------
//
// Scale * 2^7 is zero or a normal binary16 whose bits 14..7 say everything. Stored rotated by one,
// so that the byte twice under a mask is that binary16.

inline uint8_t pack_nvfp4_scale(uint8_t e4m3) {
  const uint32_t exponent = e4m3 >> 3;
  const uint32_t mantissa = e4m3 & 7u;
  uint32_t bits = ((exponent + 15) << 3) | mantissa;  // 2^(exponent - 7 + 7), bias 15
  if (exponent == 0) {
    bits = 0;
    for (uint32_t top = 0; top < 3; ++top) {
      // mantissa * 2^-9 * 2^7 with its first bit at `top`
      if (mantissa >> top == 1) bits = ((top + 13) << 3) | ((mantissa << (3 - top)) & 7u);
    }
  }
  return static_cast<uint8_t>((bits >> 1) | (bits << 7));
}

// Scales 2 pair and 2 pair + 1 of four, times 2^7, in the low and the high half.
LOCKSTEP_HOST_DEVICE uint32_t decode_nvfp4_scales(uint32_t scales, int pair) {
#ifdef __CUDA_ARCH__
  return __byte_perm(scales, 0, pair == 0 ? 0x1100 : 0x3322) & 0x7f807f80u;
#else
  const uint32_t low = (scales >> (16 * pair)) & 0xffu;
  const uint32_t high = (scales >> (16 * pair + 8)) & 0xffu;
  return (low * 0x101u | high * 0x1010000u) & 0x7f807f80u;
#endif
}

// ---- Unsigned four-bit integers: eight codes, columns k..k+7 -----------------------------------
//
// Even columns in nibbles 0..3, odd ones in nibbles 4..7. Pair j comes out as fields of binary16:
// 1024 + q for even j, 1024 + 16 q for odd j; the kernel subtracts the zero point with the offset.

inline uint32_t pack_int4_word(const uint8_t codes[8]) {
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) {
    word |= static_cast<uint32_t>(codes[i] & 15u) << (4 * (i / 2) + 16 * (i % 2));
  }
  return word;
}

}  // namespace lockstep
