#pragma once

#include <memory>

#include "engine/device/device.h"

namespace lockstep {

int count_cuda_devices();
std::unique_ptr<Device> open_cuda_device(int index);

}  // namespace lockstep
