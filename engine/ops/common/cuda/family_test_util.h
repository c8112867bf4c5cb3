// A test of kernels of one family is skipped where the card does not run them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/ops/common/cuda/device_test_util.h"

namespace lockstep::op_test {

inline bool card_runs(KernelFamily family) {
  const std::vector<KernelFamily> families = Card::instance().families();
  return std::find(families.begin(), families.end(), family) != families.end();
}

}  // namespace lockstep::op_test

#define LOCKSTEP_NEEDS_FAMILY(family)          \
  LOCKSTEP_NEEDS_CARD();                       \
  if (!::lockstep::op_test::card_runs(family)) \
  GTEST_SKIP() << "this card does not run " << family_name(family)
