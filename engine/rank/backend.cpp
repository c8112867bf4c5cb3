#include "engine/rank/backend.h"

#include "engine/base/error.h"
#if defined(LOCKSTEP_CUDA)
#include "engine/rank/cuda/cuda_backend.h"
#endif

namespace lockstep {

std::unique_ptr<Backend> make_backend(const Model& model, const EngineOptions& options) {
  if (options.device == nullptr) return make_cpu_backend(model);
#if defined(LOCKSTEP_CUDA)
  if (options.device->facts().kind == DeviceKind::cuda) return make_cuda_backend(model, options);
#endif
  fail("device {}: no backend runs passes on it", options.device->facts().name);
}

}  // namespace lockstep
