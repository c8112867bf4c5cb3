#include "hardware-probe/real/real_peers.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "hardware-probe/kernels/workload.h"

namespace lockstep::probe {
namespace {

constexpr int64_t kReduceBytes = int64_t{32} << 20;
constexpr uint64_t kPingPongLimit_ns = 4'000'000'000ull;
constexpr uint32_t kPingPongRounds = 1000;
constexpr int kAlreadyEnabled = 704, kNoPeer = 217;

void pattern_copy(Cuda& cuda, int gpu, DevicePointer to, DevicePointer from, int64_t bytes) {
  uint64_t n = static_cast<uint64_t>(bytes) / 8;
  cuda.launch(gpu, "probe_peer_move", wide_grid(cuda, gpu), 512, {&to, &from, &n});
}

}  // namespace

// Which card's context a copy needs is the driver's business once both contexts exist.
void RealPeers::enable(int from, int to) {
  void* context = nullptr;
  cuda_.use(to);
  cuda_.call("cuCtxGetCurrent", &context);
  cuda_.use(from);
  const int status = cuda_.status("cuCtxEnablePeerAccess", context, 0u);
  if (status != 0 && status != kAlreadyEnabled) {
    fail("gpu{} cannot open gpu{}'s memory: error {}{}", from, to, status,
         status == kNoPeer ? " (no peer access)" : "");
  }
}

void RealPeers::add_window(int gpu, int64_t bytes) {
  Window& own = windows_[gpu];
  if (own.bytes >= bytes) return;
  if (own.bytes > 0) {
    cuda_.release(gpu, own.source);
    cuda_.release(gpu, own.window);
  }
  own.source = cuda_.allocate(gpu, bytes);
  own.window = cuda_.allocate(gpu, bytes);
  own.bytes = bytes;
}

void RealPeers::open(int from, int to, int64_t bytes) {
  enable(from, to);
  enable(to, from);
  add_window(from, bytes);
  add_window(to, bytes);
}

void RealPeers::close() {
  for (const auto& [gpu, own] : windows_) {
    cuda_.release(gpu, own.source);
    cuda_.release(gpu, own.window);
  }
  windows_.clear();
}

RealPeers::Window& RealPeers::window(int gpu) {
  const auto known = windows_.find(gpu);
  if (known == windows_.end()) fail("gpu{} has no open window", gpu);
  return known->second;
}

void RealPeers::fill(int gpu, bool source, const Pattern& pattern) {
  const Window& own = window(gpu);
  fill_range(cuda_, gpu, source ? own.source : own.window, own.bytes, 0, pattern);
  cuda_.synchronize(gpu);
}

// By the owner's own kernel, and by a host copy of the first words: two readers that share no path.
Mismatches RealPeers::verify(int gpu, const Pattern& pattern) {
  const Window& own = window(gpu);
  Mismatches out = verify_range(cuda_, gpu, own.window, own.bytes, 0, pattern);
  std::vector<uint64_t> head(1 << 16);
  cuda_.to_host(gpu, head.data(), own.window, head.size() * 8);
  int64_t wrong = 0;
  for (size_t i = 0; i < head.size(); ++i)
    wrong += head[i] != pattern_word(pattern.kind, pattern.seed, i) ? 1 : 0;
  out.count = std::max(out.count, wrong);
  return out;
}

void RealPeers::move(PeerPath path, int from, int to) {
  const Window &sender = window(from), &receiver = window(to);
  const int64_t bytes = std::min(sender.bytes, receiver.bytes);
  if (path == PeerPath::copy_engine) {
    void *to_context = nullptr, *from_context = nullptr;
    cuda_.use(to);
    cuda_.call("cuCtxGetCurrent", &to_context);
    cuda_.use(from);
    cuda_.call("cuCtxGetCurrent", &from_context);
    cuda_.call("cuMemcpyPeerAsync", receiver.window, to_context, sender.source, from_context,
               static_cast<size_t>(bytes), cuda_.stream(from));
  } else if (path == PeerPath::store) {
    pattern_copy(cuda_, from, receiver.window, sender.source, bytes);
  } else {
    pattern_copy(cuda_, from, sender.window, receiver.source, bytes);
  }
  cuda_.synchronize(from);
}

double RealPeers::move_ms(PeerTiming timing, int from, int to, int64_t bytes) {
  if (timing == PeerTiming::through_host) return bounce_ms(from, to, bytes);
  const Window &sender = window(from), &receiver = window(to);
  const auto n = static_cast<size_t>(std::min({bytes, sender.bytes, receiver.bytes}));
  if (timing == PeerTiming::store) {
    return cuda_.timed_ms(from, [&] {
      pattern_copy(cuda_, from, receiver.window, sender.source, static_cast<int64_t>(n));
    });
  }
  const auto copy = [&](int gpu, DevicePointer target, DevicePointer origin) {
    cuda_.call("cuMemcpyDtoDAsync_v2", target, origin, n, cuda_.stream(gpu));
  };
  // Small copies are timed as a program feels them: enqueued and waited for.
  const auto begin = std::chrono::steady_clock::now();
  if (timing == PeerTiming::both_ways) copy(to, sender.window, receiver.source);
  copy(from, receiver.window, sender.source);
  cuda_.synchronize(from);
  if (timing == PeerTiming::both_ways) cuda_.synchronize(to);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Two pinned buffers in turn: one fills from the sender while the other empties into the receiver.
double RealPeers::bounce_ms(int from, int to, int64_t bytes) {
  constexpr size_t kPiece = size_t{4} << 20;
  const Window &sender = window(from), &receiver = window(to);
  void* host[2] = {nullptr, nullptr};
  void *filled[2] = {nullptr, nullptr}, *emptied[2] = {nullptr, nullptr};
  for (int i = 0; i < 2; ++i) {
    cuda_.use(from);
    cuda_.call("cuMemHostAlloc", &host[i], kPiece, 1u);
    cuda_.call("cuEventCreate", &filled[i], 2u);
    cuda_.use(to);
    cuda_.call("cuEventCreate", &emptied[i], 2u);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (size_t at = 0, piece = 0; at < static_cast<size_t>(bytes); at += kPiece, ++piece) {
    const size_t n = std::min(kPiece, static_cast<size_t>(bytes) - at);
    const size_t slot = piece % 2;
    void* up = cuda_.stream(from);
    if (piece >= 2) cuda_.call("cuStreamWaitEvent", up, emptied[slot], 0u);
    cuda_.call("cuMemcpyDtoHAsync_v2", host[slot], sender.source + at, n, up);
    cuda_.call("cuEventRecord", filled[slot], up);
    void* down = cuda_.stream(to);
    cuda_.call("cuStreamWaitEvent", down, filled[slot], 0u);
    cuda_.call("cuMemcpyHtoDAsync_v2", receiver.window + at, static_cast<const void*>(host[slot]),
               n, down);
    cuda_.call("cuEventRecord", emptied[slot], down);
  }
  cuda_.synchronize(to);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  for (int i = 0; i < 2; ++i) {
    cuda_.call("cuMemFreeHost", host[i]);
    cuda_.call("cuEventDestroy_v2", filled[i]);
    cuda_.call("cuEventDestroy_v2", emptied[i]);
  }
  return ms;
}

double RealPeers::ping_pong_us(int from, int to, const std::string& what) {
  uint32_t payload = what == "flag" ? 0 : static_cast<uint32_t>(std::stoul(what) / 8);
  uint32_t rounds = kPingPongRounds;
  uint64_t limit = kPingPongLimit_ns;
  const int gpus[2] = {from, to};
  DevicePointer results[2];
  for (int i = 0; i < 2; ++i) {
    results[i] = cuda_.allocate(gpus[i], 64);
    cuda_.call("cuMemsetD8Async", results[i], static_cast<unsigned char>(0), size_t{64},
               cuda_.stream(gpus[i]));
    cuda_.call("cuMemsetD8Async", window(gpus[i]).window, static_cast<unsigned char>(0),
               size_t{1} << 18, cuda_.stream(gpus[i]));
    cuda_.synchronize(gpus[i]);
  }
  for (int i = 0; i < 2; ++i) {
    DevicePointer mine = window(gpus[i]).window, theirs = window(gpus[1 - i]).window;
    int starts = i == 0 ? 1 : 0;
    cuda_.launch(gpus[i], "probe_ping_pong", 1, 512,
                 {&mine, &theirs, &payload, &rounds, &starts, &limit, &results[i]});
  }
  uint64_t answers[2][3] = {};
  for (int i = 0; i < 2; ++i) {
    cuda_.to_host(gpus[i], answers[i], results[i], sizeof(answers[i]));
    cuda_.release(gpus[i], results[i]);
  }
  if (answers[0][0] != 1 || answers[1][0] != 1)
    throw DeadlinePassed("two resident kernels never met");
  if (answers[0][1] + answers[1][1] > 0)
    fail("{} payload words were stale", answers[0][1] + answers[1][1]);
  return static_cast<double>(answers[0][2]) / (2.0 * (rounds - rounds / 4)) / 1000.0;
}

Rung RealPeers::atomics(int from, int to) {
  const auto atomics_cap = [&] {
    int value = 0, a = 0, b = 0;
    constexpr int kNativeAtomics = 3;
    cuda_.call("cuDeviceGet", &a, from);
    cuda_.call("cuDeviceGet", &b, to);
    cuda_.call("cuDeviceGetP2PAttribute", &value, kNativeAtomics, a, b);
    return value;
  };
  if (atomics_cap() == 0) return {"unsupported", 0, 0, "no atomics over this path"};
  constexpr uint64_t kThreads = 64 * 256;
  uint32_t per_thread = 16;
  DevicePointer counter = window(to).window;
  const uint64_t zero = 0;
  cuda_.to_device(to, counter, &zero, 8);
  cuda_.launch(from, "probe_peer_atomics", 64, 256, {&counter, &per_thread});
  cuda_.synchronize(from);
  uint64_t sum = 0;
  cuda_.to_host(to, &sum, counter, 8);
  const bool good = sum == kThreads * per_thread;
  return {good ? "ok" : "wrong", good ? 0 : 1, 1,
          good ? "" : fmt::format("sum {} instead of {}", sum, kThreads * per_thread)};
}

Rung RealPeers::verify_sums(int n_gpus, uint64_t seed) {
  Rung out;
  out.words = n_gpus * kReduceBytes / 8;
  for (int gpu = 0; gpu < n_gpus; ++gpu) {
    DevicePointer memory = window(gpu).window;
    uint64_t n = static_cast<uint64_t>(kReduceBytes) / 8;
    uint32_t seeds = static_cast<uint32_t>(n_gpus);
    DevicePointer count = cuda_.allocate(gpu, 8);
    const unsigned long long zero = 0;
    cuda_.to_device(gpu, count, &zero, 8);
    cuda_.launch(gpu, "probe_verify_sum", wide_grid(cuda_, gpu), 512,
                 {&memory, &n, &seed, &seeds, &count});
    unsigned long long wrong = 0;
    cuda_.to_host(gpu, &wrong, count, 8);
    cuda_.release(gpu, count);
    out.wrong_words += static_cast<int64_t>(wrong);
  }
  out.outcome = out.wrong_words == 0 ? "ok" : "wrong";
  return out;
}

Rung RealPeers::all_reduce(int n_gpus, bool through_peers, uint64_t seed) {
  for (int gpu = 0; gpu < n_gpus; ++gpu) add_window(gpu, kReduceBytes);
  for (int a = 0; through_peers && a < n_gpus; ++a) {
    for (int b = 0; b < n_gpus; ++b) {
      int can = 1;
      if (a != b) cuda_.call("cuDeviceCanAccessPeer", &can, a, b);
      if (can == 0) return {"unsupported", 0, 0, "no peer access"};
      if (a != b) enable(a, b);
    }
  }
  for (int gpu = 0; gpu < n_gpus; ++gpu) {
    const Pattern own{kPatternRandom, seed + static_cast<uint64_t>(gpu)};
    fill(gpu, true, own);
    fill(gpu, false, own);
  }
  std::vector<uint64_t> host(kReduceBytes / 8);
  for (int gpu = 0; gpu < n_gpus; ++gpu) {
    for (int other = 0; other < n_gpus; ++other) {
      if (other == gpu) continue;
      DevicePointer sum = window(gpu).window, theirs = window(other).source, staged = 0;
      if (!through_peers) {
        staged = cuda_.allocate(gpu, kReduceBytes);
        cuda_.to_host(other, host.data(), theirs, host.size() * 8);
        cuda_.to_device(gpu, staged, host.data(), host.size() * 8);
        theirs = staged;
      }
      uint64_t n = static_cast<uint64_t>(kReduceBytes) / 8;
      cuda_.launch(gpu, "probe_sum", wide_grid(cuda_, gpu), 512, {&sum, &theirs, &n});
      cuda_.synchronize(gpu);
      if (staged != 0) cuda_.release(gpu, staged);
    }
  }
  Rung out = verify_sums(n_gpus, seed);
  close();
  return out;
}

std::pair<Rung, std::string> RealPeers::nccl_all_reduce(const std::string& library, int n_gpus,
                                                        uint64_t seed) {
  // NVLink multicast changes the state of the switches, which other users of the host share.
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  DynamicLibrary nccl(library.c_str());
  if (!nccl.present()) return {{"unsupported", 0, 0, nccl.error()}, ""};
  int number = 0;
  nccl.call("ncclGetVersion", &number);
  const std::string version =
      fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  const auto broken = [&](const char* what, int status) {
    return std::pair<Rung, std::string>{
        {"error", 0, 0, fmt::format("{} gave error {}", what, status)}, version};
  };
  std::vector<int> gpus;
  for (int gpu = 0; gpu < n_gpus; ++gpu) {
    add_window(gpu, kReduceBytes);
    fill(gpu, true, {kPatternRandom, seed + static_cast<uint64_t>(gpu)});
    gpus.push_back(gpu);
  }
  std::vector<void*> communicators(gpus.size(), nullptr);
  if (const int status = nccl.call("ncclCommInitAll", communicators.data(), n_gpus,
                                   static_cast<const int*>(gpus.data()));
      status != 0)
    return broken("ncclCommInitAll", status);
  constexpr int kUint64 = 5, kSum = 0;
  nccl.call("ncclGroupStart");
  for (const int gpu : gpus) {
    const Window& own = window(gpu);
    const auto n = static_cast<size_t>(kReduceBytes) / 8;
    const int status = nccl.call("ncclAllReduce", reinterpret_cast<const void*>(own.source),
                                 reinterpret_cast<void*>(own.window), n, kUint64, kSum,
                                 communicators[static_cast<size_t>(gpu)], cuda_.stream(gpu));
    if (status != 0) return broken("ncclAllReduce", status);
  }
  if (const int status = nccl.call("ncclGroupEnd"); status != 0)
    return broken("ncclGroupEnd", status);
  for (const int gpu : gpus) cuda_.synchronize(gpu);
  Rung out = verify_sums(n_gpus, seed);
  close();
  return {out, version};
}

}  // namespace lockstep::probe
