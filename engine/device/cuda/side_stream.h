// A second stream for work beside that of a main stream, also inside a recorded graph.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "engine/device/device.h"

namespace lockstep {

class SideStream {
 public:
  explicit SideStream(Device& device);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // What comes to the side stream from here on waits for what `main` holds.
  void fork(Stream& main);
  // The other way round. Each fork must be joined before a graph ends.
  void join(Stream& main);

  Stream& stream() { return *stream_; }

 private:
  std::unique_ptr<Stream> stream_;
  cudaEvent_t forked_ = nullptr;
  cudaEvent_t joined_ = nullptr;
};

}  // namespace lockstep
