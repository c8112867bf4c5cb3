#include "engine/comm/cuda/transports.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <optional>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/comm/by_size.h"
#include "engine/comm/cuda/card_mailbox.h"
#include "engine/comm/cuda/nccl.h"
#include "engine/device/cuda/cuda_check.h"
#include "engine/device/cuda/cuda_graph.h"

namespace lockstep {
namespace {

constexpr int kInGraph = 20;
constexpr int kReplays = 7;  // and one before them
constexpr int64_t kRaceBytes = int64_t{40} << 10;

// What was refused may have left an error that a later launch would find.
std::function<std::unique_ptr<DeviceCommunicator>()> clearing_errors(
    std::unique_ptr<DeviceCommunicator> (*open)(Communicator&, Device&), Communicator& host,
    Device& device) {
  return [open, &host, &device] {
    try {
      return open(host, device);
    } catch (const Error&) {
      cudaGetLastError();
      throw;
    }
  };
}

class Events {
 public:
  Events() {
    cuda_check(cudaEventCreate(&start), "cudaEventCreate");
    cuda_check(cudaEventCreate(&end), "cudaEventCreate");
  }
  ~Events() {
    cudaEventDestroy(start);
    cudaEventDestroy(end);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
};

}  // namespace

double time_all_reduce(DeviceCommunicator& transport, Device& device, Stream& stream,
                       int64_t n_bytes) {
  DeviceMemory values(device, n_bytes);
  stream.fill(values.data(), 0, n_bytes);
  const auto native = static_cast<cudaStream_t>(stream.native());
  const auto run = [&] {
    for (int i = 0; i < kInGraph; ++i) {
      transport.all_reduce(values.data(), n_bytes / 2, Rounding::bf16, stream);
    }
  };
  run();
  transport.synchronize(stream);
  std::optional<CudaGraph> replay;
  if (transport.capturable()) replay.emplace(native, run);
  const Events events;
  std::vector<double> times;
  for (int i = 0; i < kReplays + 1; ++i) {
    cuda_check(cudaEventRecord(events.start, native), "cudaEventRecord");
    replay ? replay->launch(native) : run();
    cuda_check(cudaEventRecord(events.end, native), "cudaEventRecord");
    transport.synchronize(stream);
    float milliseconds = 0.0f;
    cuda_check(cudaEventElapsedTime(&milliseconds, events.start, events.end), "transport's race");
    if (i > 0) times.push_back(milliseconds * 1e3 / kInGraph);
  }
  return median(times);
}

std::vector<TransportCandidate> card_transports(Communicator& host, Device& device) {
  return {{"device", clearing_errors(open_device_mailbox, host, device)},
          {"host", clearing_errors(open_host_mailbox, host, device)},
          {"nccl", clearing_errors(open_nccl, host, device)},
          {"mailbox", [&host] { return make_staged_communicator(host); }}};
}

ChosenTransport choose_transport(const std::string& choice, Communicator& host, Device& device) {
  device.make_current();
  const std::unique_ptr<Stream> stream = device.new_stream();
  std::vector<TransportCandidate> candidates = card_transports(host, device);
  std::erase_if(candidates, [&](const TransportCandidate& candidate) {
    return choice != "auto" && choice != candidate.name;
  });
  LOCKSTEP_CHECK(!candidates.empty());
  std::vector<TransportEntry> entries = race_transports(
      candidates, host, device, *stream,
      [&](DeviceCommunicator& one) { return time_all_reduce(one, device, *stream, kRaceBytes); });
  TransportEntry* best = fastest(entries);
  if (best == nullptr) {
    fail_with(ExitCode::usage, "--transport {}: {}; use --transport auto", choice,
              to_text(entries));
  }
  ChosenTransport chosen;
  chosen.report = fmt::format("transport {} (40 KB: {})", best->name, to_text(entries));
  TransportEntry* nccl = nullptr;
  for (TransportEntry& entry : entries) {
    if (entry.name == "nccl" && entry.transport != nullptr && &entry != best) nccl = &entry;
  }
  if (nccl == nullptr) {
    chosen.transport = std::move(best->transport);
    return chosen;
  }
  chosen.report += fmt::format("; above {} KB nccl", kLargeMessageBytes / 1024);
  chosen.transport =
      by_message_size(std::move(best->transport), std::move(nccl->transport), kLargeMessageBytes);
  return chosen;
}

}  // namespace lockstep
