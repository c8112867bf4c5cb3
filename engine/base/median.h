#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace lockstep {

// Of an even number of values the mean of the middle two; NaN of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace lockstep
