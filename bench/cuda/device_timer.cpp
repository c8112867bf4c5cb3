#include "bench/cuda/device_timer.h"

#include <vector>

#include "bench/timer.h"
#include "engine/device/cuda/cuda_check.h"

namespace lockstep::bench_cuda {

LaunchTimes time_launches(cudaStream_t stream, int n_launches, int n_replays,
                          const std::function<void(int)>& launch) {
  launch(0);  // loads modules and sets attributes, which a capture must not do
  cuda_check(cudaStreamSynchronize(stream), "warm-up");
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < n_launches; ++i) launch(i);
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamEndCapture(stream, &graph), "capture");
  cudaGraphExec_t exec = nullptr;
  cuda_check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  cudaEvent_t start;
  cudaEvent_t end;
  cuda_check(cudaEventCreate(&start), "cudaEventCreate");
  cuda_check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> seconds;
  for (int i = 0; i < n_replays + 1; ++i) {
    cuda_check(cudaEventRecord(start, stream), "cudaEventRecord");
    cuda_check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    cuda_check(cudaEventRecord(end, stream), "cudaEventRecord");
    cuda_check(cudaEventSynchronize(end), "timed kernels");
    float milliseconds = 0.0f;
    cuda_check(cudaEventElapsedTime(&milliseconds, start, end), "cudaEventElapsedTime");
    if (i > 0) seconds.push_back(milliseconds * 1e-3 / n_launches);  // the first uploads the graph
  }
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  return {median(seconds), seconds};
}

}  // namespace lockstep::bench_cuda
