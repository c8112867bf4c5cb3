// Turns the return code of a CUDA runtime call into an Error. For files that CUDA builds compile.
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep {

// Throws Error (device_error) that names `what` and CUDA's reason unless `code` is cudaSuccess.
void cuda_check(cudaError_t code, const char* what);

// After a launch: reports a refused configuration. Faults inside the kernel surface later.
void cuda_check_launch(const char* kernel);

}  // namespace lockstep
