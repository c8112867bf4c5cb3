// Memory for launches that must find nothing of each other in a cache.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <string>

#include "bench/cuda/device_kernels.h"
#include "bench/cuda/device_timer.h"
#include "bench/cuda/ops_run.h"

namespace lockstep::bench_cuda {

inline cudaStream_t native_stream(const OpsRun& run) {
  return static_cast<cudaStream_t>(run.stream.native());
}

// Places for one launch after another, so that a launch finds nothing of the last one in a cache
// that all of them together overflow; small ones stay in the second-level cache, as between the
// kernels of a round.
class Places {
 public:
  Places(OpsRun& run, int64_t bytes)
      : stride_((bytes + 255) / 256 * 256),
        n_(static_cast<int>(
            std::clamp<int64_t>(3 * run.device.facts().l2_bytes / stride_ + 1, 2, 32))),
        memory_(run.device, n_ * stride_) {
    // bfloat16 and float32 alike of ordinary size.
    launch_fill(memory_.data(), memory_.size() / 4, 0x83ff83ffu, 0x3c003c00u, 11,
                native_stream(run));
  }
  template <typename T>
  T* at(int launch) const {
    return reinterpret_cast<T*>(memory_.data() + launch % n_ * stride_);
  }
  int n() const { return n_; }

 private:
  int64_t stride_;
  int n_;
  DeviceMemory memory_;
};

inline void add_row(OpsRun& run, const std::string& op, const std::string& what, int n_tokens,
                    double bytes, int n_launches, const std::function<void(int)>& launch) {
  const LaunchTimes seconds =
      time_launches(native_stream(run), std::max(n_launches, 16), run.settings.n_replays, launch);
  run.rows.push_back({op, what, n_tokens, bytes, seconds});
}

}  // namespace lockstep::bench_cuda
