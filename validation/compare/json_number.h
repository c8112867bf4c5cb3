// Numbers as reports write them: JSON knows neither infinity nor NaN.
#pragma once

#include <cmath>

namespace lockstep {

// `value`, or 1e300 where it is infinite or undefined.
inline double finite(double value) {
  return std::isfinite(value) ? value : 1e300;
}

}  // namespace lockstep
