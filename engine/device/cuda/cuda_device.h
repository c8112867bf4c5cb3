#pragma once

#include <memory>
#include <vector>

#include "engine/device/cards.h"
#include "engine/device/device.h"

namespace lockstep {

int count_cuda_devices();
std::vector<Card> list_cuda_cards();
std::unique_ptr<Device> open_cuda_device(int index, bool as_sm70);

}  // namespace lockstep
