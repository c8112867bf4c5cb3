#include "bench/timer.h"

#include <algorithm>
#include <chrono>

#include "engine/base/error.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(int64_t n_calls, const std::function<void()>& body) {
  const auto start = Clock::now();
  for (int64_t i = 0; i < n_calls; ++i) body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Doubles until a sample is long enough; a pause by a neighbour can only end the search early.
int64_t calls_per_sample(const TimerOptions& options, const std::function<void()>& body) {
  constexpr int64_t kMaxCalls = int64_t{1} << 24;
  int64_t n_calls = 1;
  while (n_calls < kMaxCalls && seconds_of(n_calls, body) < options.min_sample_s) n_calls *= 2;
  return n_calls;
}

}  // namespace

std::vector<double> time_calls(const TimerOptions& options, const std::function<void()>& body) {
  LOCKSTEP_CHECK(options.n_samples > 0);
  const int64_t n_calls = calls_per_sample(options, body);
  std::vector<double> seconds;
  for (int i = 0; i < options.n_samples; ++i) {
    seconds.push_back(seconds_of(n_calls, body) / static_cast<double>(n_calls));
  }
  return seconds;
}

Spread spread_of(const std::vector<double>& values) {
  LOCKSTEP_CHECK(!values.empty());
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {median(values), *low, *high};
}

}  // namespace lockstep
