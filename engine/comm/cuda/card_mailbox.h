// Mailboxes between two cards of one host, one rank a process: each rank has an inbox that its
// peer's kernels write (exchange_kernel.h). Both functions are called by both ranks together;
// either both return or both throw Error that says why this machine has no such mailbox.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/comm/device_communicator.h"

namespace lockstep {

// "device": each inbox lies in its rank's card; the peer's kernels reach it over NVLink or PCIe.
std::unique_ptr<DeviceCommunicator> open_device_mailbox(Communicator& host, Device& device);

// "host": both inboxes lie in pinned memory of the host, for cards that cannot reach each other.
std::unique_ptr<DeviceCommunicator> open_host_mailbox(Communicator& host, Device& device);

}  // namespace lockstep
