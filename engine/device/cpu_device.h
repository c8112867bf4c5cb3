#pragma once

#include <memory>

#include "engine/device/device.h"

namespace lockstep {

std::unique_ptr<Device> open_cpu_device();

}  // namespace lockstep
