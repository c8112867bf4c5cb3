#include "engine/device/cuda/op_clock.h"

#include "engine/device/cuda/cuda_check.h"

namespace lockstep {

OpTimeline::~OpTimeline() {
  for (const Mark& mark : marks_) cudaEventDestroy(mark.event);
}

void OpClock::begin(OpTimeline& timeline) {
  timeline_ = &timeline;
  timeline.n_used_ = 0;
  record("start");
  record(kNoOp);
}

void OpClock::record(const char* op) {
  if (timeline_->n_used_ == timeline_->marks_.size()) {
    cudaEvent_t event = nullptr;
    cuda_check(cudaEventCreate(&event), "cudaEventCreate");
    timeline_->marks_.push_back({op, event});
  }
  OpTimeline::Mark& mark = timeline_->marks_[timeline_->n_used_++];
  mark.op = op;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream_, &capture), "cudaStreamIsCapturing");
  // Inside a graph: a node that records the event for readers outside.
  const bool captured = capture == cudaStreamCaptureStatusActive;
  cuda_check(cudaEventRecordWithFlags(mark.event, stream_,
                                      captured ? cudaEventRecordExternal : cudaEventRecordDefault),
             "cudaEventRecord");
}

void OpClock::collect(const OpTimeline& timeline) {
  for (size_t i = 1; i < timeline.n_used_; ++i) {
    float milliseconds = 0.0f;
    cuda_check(
        cudaEventElapsedTime(&milliseconds, timeline.marks_[i - 1].event, timeline.marks_[i].event),
        "cudaEventElapsedTime");
    Total& total = totals_[timeline.marks_[i].op];
    total.seconds += milliseconds * 1e-3;
    ++total.n;
  }
}

}  // namespace lockstep
