// Work of one stream recorded as a CUDA graph, which a single call enqueues again: the same kernels
// with the same arguments, so what changes from run to run lies in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace lockstep {

class CudaGraph {
 public:
  // Records what `enqueue` puts on `stream` without running it. All of it must have run before, so
  // that no kernel is loaded now. Throws Error (device_error) when something cannot be recorded.
  CudaGraph(cudaStream_t stream, const std::function<void()>& enqueue);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(cudaStream_t stream) const;

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace lockstep
