#include "engine/device/cuda/side_stream.h"

#include "engine/device/cuda/cuda_check.h"

namespace lockstep {
namespace {

cudaStream_t native(Stream& stream) {
  return static_cast<cudaStream_t>(stream.native());
}

void wait_for(Stream& waiting, Stream& ahead, cudaEvent_t event) {
  cuda_check(cudaEventRecord(event, native(ahead)), "cudaEventRecord");
  cuda_check(cudaStreamWaitEvent(native(waiting), event, 0), "cudaStreamWaitEvent");
}

}  // namespace

SideStream::SideStream(Device& device) : stream_(device.new_stream()) {
  device.make_current();
  cuda_check(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming), "cudaEventCreate");
  cuda_check(cudaEventCreateWithFlags(&joined_, cudaEventDisableTiming), "cudaEventCreate");
}

SideStream::~SideStream() {
  cudaEventDestroy(forked_);
  cudaEventDestroy(joined_);
}

void SideStream::fork(Stream& main) {
  wait_for(*stream_, main, forked_);
}

void SideStream::join(Stream& main) {
  wait_for(main, *stream_, joined_);
}

}  // namespace lockstep
