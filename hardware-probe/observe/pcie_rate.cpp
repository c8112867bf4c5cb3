#include "hardware-probe/observe/pcie_rate.h"

#include <algorithm>

namespace lockstep::probe {

double pcie_gbps(int gen, int width) {
  // 8b/10b below generation 3, 128b/130b from 3 on.
  constexpr double kLane[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  return kLane[std::clamp(gen, 0, 6)] * std::max(width, 0);
}

}  // namespace lockstep::probe
