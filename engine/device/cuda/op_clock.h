// Times the ops of a pass on a card by events between them, also inside a recorded graph. Events
// keep an op from starting before the one ahead of it has ended, so the sum is longer than the same
// pass without them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// Name of the interval between two events with nothing between them, once a pass.
inline constexpr const char* kNoOp = "events alone";

// The events of one pass, in order. They belong to it and are recorded anew each time it runs.
class OpTimeline {
 public:
  OpTimeline() = default;
  ~OpTimeline();
  OpTimeline(const OpTimeline&) = delete;
  OpTimeline& operator=(const OpTimeline&) = delete;

 private:
  friend class OpClock;
  struct Mark {
    const char* op;
    cudaEvent_t event;
  };
  std::vector<Mark> marks_;
  size_t n_used_ = 0;
};

class OpClock {
 public:
  struct Total {
    double seconds = 0.0;
    int64_t n = 0;
  };

  explicit OpClock(cudaStream_t stream) : stream_(stream) {}

  // Until end(), marks go to `timeline`, which forgets those of before.
  void begin(OpTimeline& timeline);
  void end() { timeline_ = nullptr; }

  // What was enqueued since the last mark was `op`, a string that lives for ever. Nothing without a
  // timeline.
  void mark(const char* op) {
    if (timeline_ != nullptr) record(op);
  }

  // Adds the times of a pass that has ended.
  void collect(const OpTimeline& timeline);

  const std::map<std::string, Total>& totals() const { return totals_; }

 private:
  void record(const char* op);

  cudaStream_t stream_;
  OpTimeline* timeline_ = nullptr;
  std::map<std::string, Total> totals_;
};

}  // namespace lockstep
