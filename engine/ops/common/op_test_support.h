// What the tests of CPU ops share: random data, guarded buffers, every instruction set in turn.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/philox.h"
#include "engine/ops/common/cpu_target.h"

namespace lockstep {

// Uniform in [-magnitude, magnitude).
inline std::vector<float> random_floats(uint64_t seed, int64_t n, float magnitude) {
  PhiloxStream stream(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = (2.0f * stream.next_uniform() - 1.0f) * magnitude;
  return out;
}

// Small integers: sums and products of a few of them are exact in float32.
inline std::vector<float> random_integers(uint64_t seed, int64_t n, int largest) {
  PhiloxStream stream(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) {
    x = static_cast<float>(static_cast<int>(stream.next_below(2 * largest + 1)) - largest);
  }
  return out;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Values between two walls, filled with a NaN that no kernel writes.
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

// Runs body() on every instruction set of this machine and goes back to the best one.
template <class Body>
void on_every_target(const Body& body) {
  for (const std::string& target : available_cpu_targets()) {
    SCOPED_TRACE(target);
    select_cpu_target(target);
    body();
  }
  select_cpu_target("auto");
}

// Largest |value - reference| / bound; infinite when a value is NaN.
template <class Values>
double worst_ratio(const Values& values, const std::vector<double>& reference,
                   const std::vector<double>& bound) {
  double worst = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double error = static_cast<double>(values[i]) - reference[i];
    const double ratio = (error < 0 ? -error : error) / bound[i];
    if (!(ratio <= worst)) worst = ratio == ratio ? ratio : 1e300;
  }
  return worst;
}

}  // namespace lockstep
