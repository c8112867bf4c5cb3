// Arithmetic that host and device share, so that the host can say what every word and every hash
// must be. Included by .cu files: no standard library beyond <cstdint> and <cmath>.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define LOCKSTEP_PROBE_HD __host__ __device__ inline
#else
#define LOCKSTEP_PROBE_HD inline
#endif

namespace lockstep::probe {

// splitmix64's finalizer.
LOCKSTEP_PROBE_HD uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Threads of a block of the bandwidth kernels, and 16-byte words that each of them reads at once.
constexpr int kStreamThreads = 256, kReadUnroll = 4;

// What a 64-bit word of tested memory must hold. Every kind but `address` and `random` is blind to
// a word that was written elsewhere; those two catch it.
enum PatternKind : int32_t {
  kPatternAddress = 0,   // the word's own index: aliasing
  kPatternWalking = 1,   // one set bit that moves with the index: data lines
  kPatternSolid = 2,     // seed repeated: moving inversions
  kPatternModulo20 = 3,  // seed on every 20th word, its inverse elsewhere: coupling
  kPatternRandom = 4,
};

LOCKSTEP_PROBE_HD uint64_t pattern_word(int32_t kind, uint64_t seed, uint64_t index) {
  switch (kind) {
    case kPatternAddress:
      return index ^ seed;
    case kPatternWalking:
      return (seed & 1u) != 0 ? ~(1ull << (index & 63u)) : 1ull << (index & 63u);
    case kPatternSolid:
      return seed;
    case kPatternModulo20:
      return index % 20u == seed % 20u ? seed : ~seed;
    default:
      return mix64(index * 0x9e3779b97f4a7c15ull + seed);
  }
}

inline constexpr int kSmThreads = 256;
inline constexpr int kSmRounds = 64;
inline constexpr int kMatrixWarps = kSmThreads / 32;
inline constexpr int kMatrixSteps = 16;  // products of 16x16x16, accumulated

// A float in [1, 2) from 23 bits of state; the sum below stays far from overflow and denormals.
LOCKSTEP_PROBE_HD float unit_float(uint64_t state) {
  return 1.0f + static_cast<float>(state >> 41) * 1.1920928955078125e-07f;
}
LOCKSTEP_PROBE_HD double unit_double(uint64_t state) {
  return 1.0 + static_cast<double>(state >> 12) * 2.220446049250313e-16;
}

union FloatBits {
  float value;
  uint32_t bits;
};
union DoubleBits {
  double value;
  uint64_t bits;
};

// Integer, FP32 FMA, FP64 FMA, correctly rounded square root and division: IEEE fixes every result.
LOCKSTEP_PROBE_HD uint64_t thread_workload(uint64_t seed, uint32_t thread) {
  uint64_t state = mix64(seed + thread);
  float single = unit_float(state);
  double wide = unit_double(state);
  for (int round = 0; round < kSmRounds; ++round) {
    state = mix64(state + 0x9e3779b97f4a7c15ull);
    single = fmaf(single, 0.5f, unit_float(state) * 0.25f);
    wide = fma(wide, 0.5, unit_double(state) * 0.25);
  }
  FloatBits root;
  root.value = sqrtf(single) / 3.0f;
  FloatBits plain;
  plain.value = single;
  DoubleBits wide_root;
  wide_root.value = sqrt(wide) / 3.0;
  return mix64(state ^ plain.bits) + mix64(root.bits) + mix64(wide_root.bits);
}

// Small integers: every partial sum is exact in fp32, so any order gives the same matrix.
LOCKSTEP_PROBE_HD int matrix_entry(uint64_t seed, int warp, int step, int side, int row,
                                   int column) {
  const uint64_t place =
      static_cast<uint64_t>(((warp * kMatrixSteps + step) * 2 + side) * 256 + row * 16 + column);
  return static_cast<int>(mix64(seed ^ (place * 0x9e3779b97f4a7c15ull)) & 15u) - 8;
}

// What one element of a thread's or a warp's result adds to the block's hash; addition commutes.
LOCKSTEP_PROBE_HD uint64_t matrix_term(int warp, int element, int value) {
  return mix64((static_cast<uint64_t>(warp) << 40) ^ (static_cast<uint64_t>(element) << 24) ^
               static_cast<uint64_t>(static_cast<uint32_t>(value)));
}

}  // namespace lockstep::probe
