// The transport of a rank on a card, chosen at start with its peer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/device_communicator.h"
#include "engine/comm/transport_race.h"

namespace lockstep {

inline constexpr int64_t kLargeMessageBytes = int64_t{128} << 10;

// "device", "host", "nccl" and "mailbox". Both must outlive what is opened.
std::vector<TransportCandidate> card_transports(Communicator& host, Device& device);

struct ChosenTransport {
  std::unique_ptr<DeviceCommunicator> transport;
  std::string report;  // one line: what raced, what was refused and why, what won
};

// `choice`: "auto" (all of them race; messages above kLargeMessageBytes go by NCCL where it gave
// the right bits), or one of "device", "host", "nccl", "mailbox" for all messages. Called by both
// ranks together. Throws Error (usage) when the chosen one is refused, with the reason.
ChosenTransport choose_transport(const std::string& choice, Communicator& host, Device& device);

// Microseconds of an all-reduce of `n_bytes` of bfloat16: the median over replays of a graph with
// many of them, or over calls where the transport cannot be captured. Both ranks together.
double time_all_reduce(DeviceCommunicator& transport, Device& device, Stream& stream,
                       int64_t n_bytes);

}  // namespace lockstep
