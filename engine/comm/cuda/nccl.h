// NCCL as a transport, opened at run time: the library that the loader finds, or the one that
// LOCKSTEP_NCCL names. NVLink multicast stays off. Called by both ranks together; either both
// return or both throw Error that says why there is no NCCL here.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/comm/device_communicator.h"

namespace lockstep {

std::unique_ptr<DeviceCommunicator> open_nccl(Communicator& host, Device& device);

}  // namespace lockstep
