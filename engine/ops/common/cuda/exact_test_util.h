// Exact cases on the card of a test.
#pragma once

#include <fmt/core.h>

#include <span>
#include <string>
#include <vector>

#include "engine/ops/common/cuda/device_test_util.h"
#include "engine/ops/common/exact_case.h"
#include "engine/ops/common/op_test_util.h"

namespace lockstep::op_test {

// How card(index, seed, device, stream) differs from cases[index].host(seed), for some seeds; empty
// when all bits are the same.
template <typename CardFunction>
std::string exact_difference(const std::vector<ExactCase>& cases, CardFunction card) {
  if (cases.empty()) return "no case";
  Device& device = *Card::instance().device;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (device.facts().arch < cases[i].least_arch) continue;
    for (const uint64_t seed : {uint64_t{1}, uint64_t{0x0123456789abcdef}}) {
      const std::vector<float> want = cases[i].host(seed);
      const std::vector<float> got = card(i, seed, device, *Card::instance().stream);
      if (got.size() != want.size() || want.empty()) return cases[i].name + ": another size";
      for (size_t j = 0; j < want.size(); ++j) {
        if (same_bits(std::span(got).subspan(j, 1), std::span(want).subspan(j, 1))) continue;
        return fmt::format("{}: {} instead of {} at {} of {}", cases[i].name, got[j], want[j], j,
                           want.size());
      }
    }
  }
  return {};
}

}  // namespace lockstep::op_test
