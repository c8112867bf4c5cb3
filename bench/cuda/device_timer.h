// Times work on a card: many launches recorded as one graph, as decode rounds are, so that a
// kernel's time holds the gap to the next one and no host time.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>
#include <vector>

namespace lockstep::bench_cuda {

// Seconds of one launch: the median of its samples, one a replay, and the samples for receipts.
class LaunchTimes {
 public:
  LaunchTimes(double one) : median_(one), samples_{one} {}
  LaunchTimes(double median, std::vector<double> samples)
      : median_(median), samples_(std::move(samples)) {}

  operator double() const { return median_; }
  const std::vector<double>& samples() const { return samples_; }

 private:
  double median_;
  std::vector<double> samples_;
};

// Of one call of `launch`, over n_replays of a graph of n_launches. `launch(i)` gets
// 0..n_launches-1 and should use other memory for each i, so that nothing is found in a cache.
LaunchTimes time_launches(cudaStream_t stream, int n_launches, int n_replays,
                          const std::function<void(int)>& launch);

}  // namespace lockstep::bench_cuda
