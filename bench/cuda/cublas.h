// cuBLAS as the yardstick beside the engine's kernels: opened at run time by whichever name is
// there, so that nothing is linked against it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

namespace lockstep::bench_cuda {

class Cublas {
 public:
  // Null if no library answers.
  static std::unique_ptr<Cublas> open(cudaStream_t stream);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // out[n_tokens, n_rows] = x[n_tokens, n_cols] weight[n_rows, n_cols]^T; all bfloat16, dense, sums
  // in float32.
  void multiply(const void* weight, const void* x, void* out, int64_t n_rows, int64_t n_cols,
                int64_t n_tokens);

 private:
  Cublas() = default;
  struct Functions;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace lockstep::bench_cuda
