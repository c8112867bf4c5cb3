// Seeded problems for every op: shapes, scales, roundings, instruction sets and thread counts come
// from the seed, and the result is judged by the op's derived bound. The honest kernels must never
// leave it: one that does is a false alarm of the bound, or a defect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/philox.h"
#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep::op_seeds {

// What a case draws its problem from.
struct Draw {
  explicit Draw(uint64_t seed) : data_seed(seed), stream(seed, 99) {}

  int64_t between(int64_t low, int64_t high) {
    return low + stream.next_below(static_cast<uint32_t>(high - low + 1));
  }
  int64_t multiple_of_16(int64_t most) { return 16 * between(1, most / 16); }
  Rounding rounding() { return stream.next_below(2) == 0 ? Rounding::none : Rounding::bf16; }
  // 10^-3 to 10^3, log-uniform.
  float scale();
  std::vector<float> floats(int64_t n, float magnitude, Rounding rounding = Rounding::none);

  uint64_t data_seed;
  PhiloxStream stream;
};

struct Case {
  const char* op;
  // Worst |error| / bound of the op on a drawn problem. With `plant` the output is changed by four
  // bounds in one place first, and a bound that means something is left.
  double (*judge)(Draw& draw, ThreadPool& pool, bool plant);
};

const std::vector<Case>& rowwise_cases();
const std::vector<Case>& product_cases();  // linear, attention
const std::vector<Case>& state_cases();    // convolution, delta rule, gates

// Largest |got - want| / bound, after `plant` changed one value by four bounds.
double judged(std::vector<float> got, const std::vector<double>& want,
              const std::vector<double>& bound, bool plant, Draw& draw);

}  // namespace lockstep::op_seeds
