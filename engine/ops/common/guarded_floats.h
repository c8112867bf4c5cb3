// Test helpers: a buffer between walls that no kernel may touch, and data whose sums are exact.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "engine/base/philox.h"

namespace lockstep::op_test {

// Small integers: sums and products of a few of them are exact in float32.
inline std::vector<float> random_integers(uint64_t seed, int64_t n, int largest) {
  PhiloxStream stream(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) {
    x = static_cast<float>(static_cast<int>(stream.next_below(2 * largest + 1)) - largest);
  }
  return out;
}

// Values between two walls, all filled with a NaN that no kernel writes.
class GuardedFloats {
 public:
  explicit GuardedFloats(int64_t n) : memory_(static_cast<size_t>(n + 2 * kWall), guard()) {}

  float* data() { return memory_.data() + kWall; }
  std::vector<float> values() const { return {memory_.begin() + kWall, memory_.end() - kWall}; }
  bool walls_intact() const {
    bool intact = true;
    for (int64_t i = 0; i < kWall; ++i) {
      intact &= is_guard(memory_[i]) && is_guard(memory_[memory_.size() - 1 - i]);
    }
    return intact;
  }
  static bool is_guard(float x) { return std::bit_cast<uint32_t>(x) == kGuardBits; }

 private:
  static constexpr int64_t kWall = 64;
  static constexpr uint32_t kGuardBits = 0x7fd5a5a5u;
  static float guard() { return std::bit_cast<float>(kGuardBits); }
  std::vector<float> memory_;
};

}  // namespace lockstep::op_test
