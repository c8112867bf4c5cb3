// Which transport joins the ranks' cards: each proves itself on known values, bit for bit, then all
// that did race, and the fastest wins. Rank 0's times decide. Both ranks call this together with
// the same candidates in the same order.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/comm/device_communicator.h"

namespace lockstep {

struct TransportCandidate {
  std::string name;
  // Throws Error on both ranks where it cannot be had here.
  std::function<std::unique_ptr<DeviceCommunicator>()> open;
};

struct TransportEntry {
  std::string name;
  std::string refusal;  // empty: it gave the right bits
  double microseconds = 0.0;
  std::unique_ptr<DeviceCommunicator> transport;  // null when refused
};

// Entries in the order of the candidates. `race` gives the microseconds of one message of 40 KB.
std::vector<TransportEntry> race_transports(const std::vector<TransportCandidate>& candidates,
                                            Communicator& host, Device& device, Stream& stream,
                                            const std::function<double(DeviceCommunicator&)>& race);

// The fastest entry that was not refused, null when there is none.
TransportEntry* fastest(std::vector<TransportEntry>& entries);

// "device 4.1 us, host refused: ..., nccl 23.0 us", for the log.
std::string to_text(const std::vector<TransportEntry>& entries);

// Sums and gathers known values of many sizes, as often as a transport has buffers and more. Throws
// Error on both ranks that names the first wrong value. In a transport that never answers, the
// wait ends after kProofDeadline.
inline constexpr std::chrono::milliseconds kProofDeadline = std::chrono::seconds(5);
void prove_transport(DeviceCommunicator& transport, Communicator& host, Device& device,
                     Stream& stream);

}  // namespace lockstep
