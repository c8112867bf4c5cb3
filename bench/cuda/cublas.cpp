#include "bench/cuda/cublas.h"

#include <dlfcn.h>
#include <library_types.h>

#include "engine/base/error.h"
#include "engine/device/cuda/cuda_check.h"

namespace lockstep::bench_cuda {
namespace {

// Values of cublas_api.h that have been the same since version 11.
constexpr int kTranspose = 1;
constexpr int kNoTranspose = 0;
constexpr int kComputeFloat = 68;
constexpr int kDefaultAlgorithm = -1;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

void* first_library() {
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"}) {
    if (void* library = dlopen(name, RTLD_NOW)) return library;
  }
  return nullptr;
}

void check(int status, const char* what) {
  if (status != 0) fail("{}: cuBLAS answers {}", what, status);
}

}  // namespace

struct Cublas::Functions {
  int (*create)(void**);
  int (*destroy)(void*);
  int (*set_stream)(void*, cudaStream_t);
  int (*set_workspace)(void*, void*, size_t);
  int (*gemm)(void*, int, int, int, int, int, const void*, const void*, cudaDataType, int,
              const void*, cudaDataType, int, const void*, void*, cudaDataType, int, int, int);
};

std::unique_ptr<Cublas> Cublas::open(cudaStream_t stream) {
  void* library = first_library();
  if (library == nullptr) return nullptr;
  std::unique_ptr<Cublas> cublas(new Cublas);
  cublas->functions_ = std::make_unique<Functions>();
  Functions& f = *cublas->functions_;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (!load(f.create, "cublasCreate_v2") || !load(f.destroy, "cublasDestroy_v2") ||
      !load(f.set_stream, "cublasSetStream_v2") ||
      !load(f.set_workspace, "cublasSetWorkspace_v2") || !load(f.gemm, "cublasGemmEx")) {
    return nullptr;
  }
  check(f.create(&cublas->handle_), "cublasCreate");
  check(f.set_stream(cublas->handle_, stream), "cublasSetStream");
  // Its own would be allocated while a graph is recorded.
  cuda_check(cudaMalloc(&cublas->workspace_, kWorkspaceBytes), "cuBLAS workspace");
  check(f.set_workspace(cublas->handle_, cublas->workspace_, kWorkspaceBytes),
        "cublasSetWorkspace");
  return cublas;
}

Cublas::~Cublas() {
  if (handle_ != nullptr) functions_->destroy(handle_);
  cudaFree(workspace_);
}

void Cublas::multiply(const void* weight, const void* x, void* out, int64_t n_rows, int64_t n_cols,
                      int64_t n_tokens) {
  const float one = 1.0f;
  const float zero = 0.0f;
  const int rows = static_cast<int>(n_rows);
  const int cols = static_cast<int>(n_cols);
  // Column-major: out^T [n_rows, n_tokens].
  check(functions_->gemm(handle_, kTranspose, kNoTranspose, rows, static_cast<int>(n_tokens), cols,
                         &one, weight, CUDA_R_16BF, cols, x, CUDA_R_16BF, cols, &zero, out,
                         CUDA_R_16BF, rows, kComputeFloat, kDefaultAlgorithm),
        "cublasGemmEx");
}

}  // namespace lockstep::bench_cuda
