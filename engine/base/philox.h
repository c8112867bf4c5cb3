// Philox4x32-10, a counter-based generator: Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3" (SC 2011). Any process can make any number of the stream by itself; nothing is carried
// along.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Uniform in [0, 1) with 24 bits: exact in float.
inline float uniform_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// A sequential view of one Philox stream, for tests and generated material.
class PhiloxStream {
 public:
  explicit PhiloxStream(uint64_t seed, uint64_t stream = 0)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, stream_(stream) {}

  uint32_t next_u32() {
    if (used_ == 4) refill();
    return block_[used_++];
  }
  float next_uniform() { return uniform_from_bits(next_u32()); }
  // Uniform integer in [0, bound), bound > 0. Lemire's multiply-shift: bias below 2^-32 * bound.
  uint32_t next_below(uint32_t bound) {
    return static_cast<uint32_t>((uint64_t{next_u32()} * bound) >> 32);
  }

 private:
  void refill() {
    block_ = philox4x32({static_cast<uint32_t>(index_), static_cast<uint32_t>(index_ >> 32),
                         static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                        key_);
    ++index_;
    used_ = 0;
  }

  PhiloxKey key_;
  uint64_t stream_;
  uint64_t index_ = 0;
  PhiloxCounter block_{};
  unsigned used_ = 4;
};

}  // namespace lockstep
