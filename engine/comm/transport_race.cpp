#include "engine/comm/transport_race.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/comm/steps.h"

namespace lockstep {
namespace {

// The times of rank 0, on all ranks.
void take_times_of_rank_0(std::vector<TransportEntry>& entries, Communicator& host) {
  std::vector<double> mine;
  for (const TransportEntry& entry : entries) mine.push_back(entry.microseconds);
  std::vector<double> all(mine.size() * static_cast<size_t>(host.n_ranks()));
  host.all_gather_bytes(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (size_t i = 0; i < entries.size(); ++i) entries[i].microseconds = all[i];
}

}  // namespace

std::vector<TransportEntry> race_transports(
    const std::vector<TransportCandidate>& candidates, Communicator& host, Device& device,
    Stream& stream, const std::function<double(DeviceCommunicator&)>& race) {
  std::vector<TransportEntry> entries;
  for (const TransportCandidate& candidate : candidates) {
    TransportEntry entry;
    entry.name = candidate.name;
    try {
      entry.transport = candidate.open();
      entry.transport->set_deadline(kProofDeadline);
      prove_transport(*entry.transport, host, device, stream);
      in_step(host, [&] { entry.microseconds = race(*entry.transport); });
      entry.transport->set_deadline(kTransportDeadline);
    } catch (const Error& error) {
      // The host's mailbox itself has failed: there is no peer to go on with.
      if (error.code() != ExitCode::fail) throw;
      entry.refusal = error.what();
      entry.transport.reset();
    }
    entries.push_back(std::move(entry));
  }
  take_times_of_rank_0(entries, host);
  return entries;
}

TransportEntry* fastest(std::vector<TransportEntry>& entries) {
  TransportEntry* best = nullptr;
  for (TransportEntry& entry : entries) {
    if (entry.transport == nullptr) continue;
    if (best == nullptr || entry.microseconds < best->microseconds) best = &entry;
  }
  return best;
}

std::string to_text(const std::vector<TransportEntry>& entries) {
  std::string text;
  for (const TransportEntry& entry : entries) {
    if (!text.empty()) text += ", ";
    text += entry.refusal.empty() ? fmt::format("{} {:.1f} us", entry.name, entry.microseconds)
                                  : fmt::format("{} refused ({})", entry.name, entry.refusal);
  }
  return text;
}

}  // namespace lockstep
