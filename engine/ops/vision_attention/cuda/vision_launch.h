// Between the op and its kernels: one function a family.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/ops/vision_attention/cuda/vision_attention_cuda.h"

namespace lockstep::cuda {

void launch_vision_attention_sm70(const VisionAttentionCudaArgs& args, cudaStream_t stream);
void launch_vision_attention_sm80(const VisionAttentionCudaArgs& args, cudaStream_t stream);

}  // namespace lockstep::cuda
