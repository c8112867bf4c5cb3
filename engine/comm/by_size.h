// Two transports as one.
#pragma once

#include <memory>

#include "engine/comm/device_communicator.h"

namespace lockstep {

// Messages of this rank of more than `threshold_bytes` go by `large`, others by `small`, whose name
// it has.
std::unique_ptr<DeviceCommunicator> by_message_size(std::unique_ptr<DeviceCommunicator> small,
                                                    std::unique_ptr<DeviceCommunicator> large,
                                                    int64_t threshold_bytes);

}  // namespace lockstep
