// Kernels that start before the one ahead of them in the stream has finished (programmatic
// dependent launch, sm_90 and up). Before such a kernel calls wait_for_earlier_kernels it may touch
// constants (weights), and what is older than the kernels ahead of it that may still run: all that
// have let the next one start before they waited themselves, and the last that has not. No block
// may end before it has waited. Elsewhere both calls are nothing and kernels run one after the
// other.
#pragma once

#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_check.h"

namespace lockstep::cuda {

// All memory of earlier kernels is written and visible after this.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel of the stream may begin as soon as every block of this one has come here.
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Launches `kernel`, early where its code knows how to wait.
template <typename Params>
void launch_early(void (*kernel)(Params), dim3 blocks, int n_threads, int shared_bytes,
                  cudaStream_t stream, const Params& params, const char* what) {
  cudaFuncAttributes code{};
  cuda_check(cudaFuncGetAttributes(&code, kernel), what);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(n_threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = code.ptxVersion >= 90 ? 1 : 0;
  cuda_check(cudaLaunchKernelEx(&config, kernel, params), what);
}

}  // namespace lockstep::cuda
