// What tests of row ops on a card share: bfloat16 arrays and comparisons with the CPU's bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/ops/common/cuda/card_array.h"
#include "engine/ops/common/cuda/device_test_util.h"
#include "engine/ops/common/op_test_util.h"

namespace lockstep::op_test {

// Every bfloat16, NaN and infinities included.
inline std::vector<uint16_t> every_bf16() {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  return bits;
}

inline Stream& card_stream() {
  return *Card::instance().stream;
}

// The same bits, any NaN counting as any other: how many differ, and the first that does.
inline void expect_same_bf16(const std::vector<uint16_t>& got, const std::vector<float>& want,
                             const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  size_t n_different = 0;
  size_t first = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = std::isnan(bf16_to_float(got[i])) && std::isnan(want[i]);
    if (both_nan || got[i] == float_to_bf16(want[i])) continue;
    if (n_different++ == 0) first = i;
  }
  if (n_different == 0) return;
  ADD_FAILURE() << what << ": " << n_different << " of " << got.size() << " differ, first " << first
                << ": " << bf16_to_float(got[first]) << " instead of " << want[first];
}

// Rows of a padded array without their padding, which must still be poisoned.
inline std::vector<uint16_t> dense_rows(const std::vector<uint16_t>& all, int64_t n_rows,
                                        int64_t width, int64_t stride) {
  std::vector<uint16_t> dense;
  for (int64_t row = 0; row < n_rows; ++row) {
    const auto first = all.begin() + row * stride;
    dense.insert(dense.end(), first, first + width);
    EXPECT_TRUE(std::all_of(first + width, first + stride, [](uint16_t b) { return b == 0xffff; }))
        << "wrote beyond row " << row;
  }
  return dense;
}

// Dense rows with poison behind each.
inline std::vector<uint16_t> padded_rows(const std::vector<uint16_t>& dense, int64_t n_rows,
                                         int64_t width, int64_t stride) {
  std::vector<uint16_t> all(static_cast<size_t>(n_rows * stride), 0xffff);
  for (int64_t row = 0; row < n_rows; ++row) {
    std::copy_n(dense.begin() + row * width, width, all.begin() + row * stride);
  }
  return all;
}

}  // namespace lockstep::op_test
