// The fat binary of kernels/probe_kernels.cu, when the build had a CUDA toolkit.
#pragma once

#include <vector>

namespace lockstep::probe {

const void* embedded_kernels();            // null without
std::vector<int> embedded_kernel_archs();  // compute capabilities x 10
bool embedded_ptx();

}  // namespace lockstep::probe
