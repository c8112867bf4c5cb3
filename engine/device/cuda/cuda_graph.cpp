#include "engine/device/cuda/cuda_graph.h"

#include "engine/base/error.h"
#include "engine/device/cuda/cuda_check.h"

namespace lockstep {

CudaGraph::CudaGraph(cudaStream_t stream, const std::function<void()>& enqueue) {
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (const Error&) {
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
  cudaGraphDestroy(graph);
  cuda_check(made, "cudaGraphInstantiate");
  cuda_check(cudaGraphUpload(exec_, stream), "cudaGraphUpload");
}

CudaGraph::~CudaGraph() {
  cudaGraphExecDestroy(exec_);
}

void CudaGraph::launch(cudaStream_t stream) const {
  cuda_check(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch");
}

}  // namespace lockstep
