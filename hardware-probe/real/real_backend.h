// The real machine: libcuda and NVML opened at run time, sysfs and procfs.
#pragma once

#include <memory>

#include "hardware-probe/collect/steps.h"

namespace lockstep::probe {

// Opens what `spec` needs and no more: a step on one card creates a context on that card alone.
std::unique_ptr<Backend> open_real(const StepSpec& spec);

}  // namespace lockstep::probe
