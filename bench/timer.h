// Every timed loop of the benchmarks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/base/median.h"

namespace lockstep {

struct TimerOptions {
  int n_samples = 5;
  double min_sample_s = 0.004;  // a shorter body is repeated until a sample lasts this long
};

// Seconds of one call of `body` in each sample. The calls that find the repeat count are not
// among them, so caches and scratch are warm.
std::vector<double> time_calls(const TimerOptions& options, const std::function<void()>& body);

struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};

Spread spread_of(const std::vector<double>& values);

}  // namespace lockstep
