#pragma once

#include <memory>

#include "engine/rank/backend.h"

namespace lockstep {

// On options.device. Throws Error that names what no kernel is registered for, or that says what
// does not fit on the card. Precision bf16 alone.
std::unique_ptr<Backend> make_cuda_backend(const Model& model, const EngineOptions& options);

}  // namespace lockstep
