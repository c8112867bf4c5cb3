#include "engine/device/cuda/pinned_memory.h"

#include "engine/device/cuda/cuda_check.h"

namespace lockstep {

PinnedMemory::PinnedMemory(int64_t n_bytes) : size_(n_bytes) {
  void* data = nullptr;
  cuda_check(cudaMallocHost(&data, static_cast<size_t>(n_bytes)), "cudaMallocHost");
  data_ = static_cast<std::byte*>(data);
}

PinnedMemory::~PinnedMemory() {
  cudaFreeHost(data_);
}

}  // namespace lockstep
