// Times work on a card: many launches recorded as one graph, as decode rounds are, so that a
// kernel's time holds the gap to the next one and no host time.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace lockstep::bench_cuda {

// Seconds of one call of `launch`, the median over n_replays of a graph of n_launches. `launch(i)`
// gets 0..n_launches-1 and should use other memory for each i, so that nothing is found in a cache.
double time_launches(cudaStream_t stream, int n_launches, int n_replays,
                     const std::function<void(int)>& launch);

}  // namespace lockstep::bench_cuda
