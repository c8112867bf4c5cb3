#include "hardware-probe/real/real_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "hardware-probe/kernels/workload.h"
#include "hardware-probe/real/cuda.h"
#include "hardware-probe/real/embedded_kernels.h"
#include "hardware-probe/real/kernel_libraries.h"
#include "hardware-probe/real/load.h"
#include "hardware-probe/real/nvml.h"
#include "hardware-probe/real/real_memory.h"
#include "hardware-probe/real/real_peers.h"
#include "hardware-probe/real/system_facts.h"

namespace lockstep::probe {
namespace {

using SteadyClock = std::chrono::steady_clock;

// CUdevice_attribute
constexpr int kSmCount = 16, kBusWidth = 37, kL2Bytes = 38, kMajor = 75, kMinor = 76,
              kSharedOptin = 97;

constexpr unsigned kBurnThreads = 256;
constexpr double kBurst_ms = 40, kRateKernel_ms = 120;

struct SmResult {
  uint64_t hash, ns;
  uint32_t sm, done;
};

const char* kernel_of(Rate rate) {
  if (rate == Rate::fp32) return "probe_fp32";
  if (rate == Rate::dp4a) return "probe_dp4a";
  return rate == Rate::fp64 ? "probe_fp64" : "probe_matrix";
}

// Multiply-adds of one round of one thread; a warp's product of 16x16x16 has 4096.
double fma_per_round(Rate rate) {
  if (rate == Rate::dp4a) return 16 * 4;
  return rate == Rate::matrix ? 4 * 4096.0 / 32.0 : 16;
}

class RealBackend final : public Backend {
 public:
  RealBackend() : memory_(cuda_), peers_(cuda_) {
    if (cuda_.present()) {
      for (int gpu = 0; gpu < cuda_.n_devices(); ++gpu) buses_.push_back(cuda_.bus_id(gpu));
    } else {
      buses_ = nvml_.bus_ids();
    }
  }

  std::string name() const override { return "real"; }
  double now_s() override {
    return std::chrono::duration<double>(SteadyClock::now() - start_).count();
  }
  void sleep_s(double seconds) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  HostFacts host() override { return read_host_facts(); }
  int n_gpus() override { return static_cast<int>(buses_.size()); }

  Visibility visible() override {
    Visibility out;
    out.sysfs = nvidia_devices_on_bus();
    out.nvml = nvml_.bus_ids();
    out.nvml_present = nvml_.present();
    out.nvml_error = nvml_.error();
    out.cuda_present = cuda_.present();
    out.cuda_error = cuda_.error();
    if (cuda_.present()) out.cuda = buses_;
    return out;
  }

  StackFacts stack() override {
    StackFacts out;
    out.driver_version = nvml_.driver_version();
    if (cuda_.present()) out.cuda_version = cuda_.driver_version();
    out.nccl = find_nccl(python_prefixes());
    out.torch = find_torch(python_prefixes());
    out.kernel_archs = embedded_kernel_archs();
    out.ptx = embedded_ptx();
    return out;
  }

  GpuIdentity identity(int gpu) override {
    GpuIdentity out;
    out.bus_id = bus(gpu);
    for (const std::string& entry : nvidia_devices_on_bus()) {
      if (entry.compare(0, out.bus_id.size(), out.bus_id) == 0)
        out.pci_id = entry.substr(entry.find(' ') + 1);
    }
    if (nvml_.present()) nvml_.describe(out.bus_id, out);
    if (!cuda_.present()) return out;
    out.compute_capability =
        fmt::format("{}.{}", cuda_.attribute(gpu, kMajor), cuda_.attribute(gpu, kMinor));
    out.sm_count = cuda_.attribute(gpu, kSmCount);
    out.l2_kib = cuda_.attribute(gpu, kL2Bytes) / 1024;
    if (!out.bus_bits.has_value()) out.bus_bits = cuda_.attribute(gpu, kBusWidth);
    if (!out.fb_mib.has_value()) out.fb_mib = cuda_.total_bytes(gpu) >> 20;
    if (!out.name.has_value()) out.name = cuda_.name(gpu);
    return out;
  }

  GpuConfig config(int gpu) override { return nvml_.config(bus(gpu)); }
  GpuHistory history(int gpu) override {
    return nvml_.present() ? nvml_.history(bus(gpu)) : GpuHistory{};
  }
  Sample sample(int gpu) override {
    const auto load = loads_.find(gpu);
    if (load != loads_.end() && load->second->failed())
      throw DeviceLost(fmt::format("gpu{} failed under load", gpu));
    return nvml_.present() ? nvml_.sample(bus(gpu)) : Sample{};
  }
  PcieLink pcie_link(int gpu) override {
    PcieLink link = nvml_.pcie_link(bus(gpu));
    link.hops = pcie_hops(bus(gpu));
    return link;
  }
  Maybe<int64_t> pcie_replays(int gpu) override { return nvml_.pcie_replays(bus(gpu)); }
  Maybe<AerCounts> aer(int gpu) override { return read_aer(bus(gpu)); }
  std::pair<Maybe<double>, Maybe<double>> violation_s(int gpu) override {
    if (!nvml_.present()) return {};
    return nvml_.violation_s(bus(gpu));
  }
  std::vector<NvlinkState> nvlinks(int gpu) override { return nvml_.nvlinks(bus(gpu)); }
  PairObservations pair_static(int from, int to) override {
    PairObservations out;
    out.from = from;
    out.to = to;
    if (nvml_.present()) nvml_.describe_pair(bus(from), bus(to), out);
    if (!cuda_.present()) fail("no CUDA driver");
    int can = 0;
    cuda_.call("cuDeviceCanAccessPeer", &can, from, to);
    out.can_access = can != 0;
    return out;
  }
  std::vector<Event> events() override {
    std::vector<Event> out;
    for (const auto& [bus_id, xid] : nvml_.xids()) {
      const auto known = std::find(buses_.begin(), buses_.end(), bus_id);
      if (known == buses_.end()) continue;
      out.push_back({now_s(), static_cast<int>(known - buses_.begin()), "xid", xid});
    }
    return out;
  }

  int64_t hold_memory(int gpu, double share) override { return memory_.hold(gpu, share); }
  void release_memory(int gpu) override { memory_.release(gpu); }
  void fill(int gpu, const Pattern& pattern) override { memory_.fill(gpu, pattern); }
  Mismatches verify(int gpu, const Pattern& pattern) override {
    return memory_.verify(gpu, pattern);
  }
  double stream_ms(int gpu, Stream stream, int64_t offset, int64_t bytes) override {
    return memory_.stream_ms(gpu, stream, offset, bytes);
  }
  double transfer_ms(int gpu, Transfer direction, int64_t bytes) override {
    return memory_.transfer_ms(gpu, direction, bytes);
  }
  int64_t transfer_wrong_words(int gpu, const Pattern& pattern, int64_t bytes) override {
    return memory_.transfer_wrong_words(gpu, pattern, bytes);
  }

  bool has_matrix_units(int gpu) override { return cuda_.attribute(gpu, kMajor) >= 7; }

  std::vector<SmRun> sm_runs(int gpu, uint64_t seed) override {
    const int sms = cuda_.attribute(gpu, kSmCount);
    // So much shared memory that no SM takes a second block.
    const int shared = cuda_.attribute(gpu, kSharedOptin) - 22 * 1024;
    std::vector<SmResult> results(static_cast<size_t>(sms));
    const size_t bytes = results.size() * sizeof(SmResult);
    DevicePointer out = cuda_.allocate(gpu, static_cast<int64_t>(bytes));
    std::map<int, std::vector<SmRun>> seen;
    for (int attempt = 0; attempt < 8 && static_cast<int>(seen.size()) < sms; ++attempt) {
      cuda_.launch(gpu, "probe_sm", static_cast<unsigned>(sms), kSmThreads, {&seed, &out},
                   static_cast<unsigned>(std::max(shared, 1024)));
      cuda_.to_host(gpu, results.data(), out, bytes);
      for (const SmResult& result : results) {
        seen[static_cast<int>(result.sm)].push_back(
            {static_cast<int>(result.sm), result.hash, static_cast<double>(result.ns) * 1e-6});
      }
    }
    cuda_.release(gpu, out);
    std::vector<SmRun> runs;
    for (const auto& [sm, list] : seen) runs.insert(runs.end(), list.begin(), list.end());
    return runs;
  }

  Maybe<double> tflops(int gpu, Rate rate) override {
    constexpr int kFirstWithDp4a = 61;
    const int arch = cuda_.attribute(gpu, kMajor) * 10 + cuda_.attribute(gpu, kMinor);
    if (rate == Rate::dp4a && arch < kFirstWithDp4a) return {};
    const unsigned blocks = burn_blocks(gpu);
    const double fma = fma_per_round(rate) * blocks * kBurnThreads;
    int rounds = rounds_for(gpu, rate, kRateKernel_ms);
    std::vector<double> rates;
    double mhz = 0;
    for (int i = 0; i < 4; ++i) {
      const double ms = cuda_.timed_ms(gpu, [&] {
        burn(gpu, rate, rounds);
        sleep_s(kRateKernel_ms / 2000);
        if (i > 0) mhz = std::max(mhz, sample(gpu).sm_mhz.value_or(0));
      });
      if (i > 0 && ms > 0) rates.push_back(2 * fma * rounds / ms * 1e-9);
    }
    std::sort(rates.begin(), rates.end());
    rate_mhz_ = mhz;
    if (rates.empty()) return {};
    return rates[rates.size() / 2];
  }
  double rate_sm_mhz(int) override { return rate_mhz_; }

  void set_load(int gpu, Load load) override {
    loads_.erase(gpu);
    if (load == Load::none) return;
    const Rate rate = has_matrix_units(gpu) ? Rate::matrix : Rate::fp32;
    // One context and one stream a card; the thread uses them alone while the load runs.
    const int rounds = rounds_for(gpu, rate, kBurst_ms);
    auto own = std::make_shared<Cuda>();
    if (load == Load::matrix) {
      const unsigned blocks = burn_blocks(gpu);
      const DevicePointer values = coefficients(gpu);
      loads_[gpu] = std::make_unique<BackgroundLoad>([own, gpu, rate, rounds, blocks, values] {
        burn_on(*own, gpu, rate, rounds, blocks, values);
        burn_on(*own, gpu, rate, rounds, blocks, values);
        own->synchronize(gpu);
      });
      return;
    }
    const int64_t bytes = std::min<int64_t>(int64_t{1} << 30, own->free_bytes(gpu) / 4);
    const std::shared_ptr<DevicePointer> buffer(new DevicePointer(own->allocate(gpu, 2 * bytes)),
                                                [own, gpu](DevicePointer* held) {
                                                  own->status("cuMemFree_v2", *held);
                                                  delete held;
                                                });
    loads_[gpu] = std::make_unique<BackgroundLoad>([own, gpu, buffer, bytes] {
      DevicePointer to = *buffer, from = *buffer + static_cast<DevicePointer>(bytes);
      uint64_t n = static_cast<uint64_t>(bytes) / 16;
      for (int i = 0; i < 16; ++i)
        own->launch(gpu, "probe_copy", static_cast<unsigned>(own->attribute(gpu, kSmCount)) * 8,
                    kStreamThreads, {&to, &from, &n});
      own->synchronize(gpu);
    });
  }

  void open_peers(int from, int to, int64_t bytes) override { peers_.open(from, to, bytes); }
  void close_peers() override { peers_.close(); }
  void window_fill(int gpu, bool source, const Pattern& pattern) override {
    peers_.fill(gpu, source, pattern);
  }
  Mismatches window_verify(int gpu, const Pattern& pattern) override {
    return peers_.verify(gpu, pattern);
  }
  void peer_move(PeerPath path, int from, int to) override { peers_.move(path, from, to); }
  double peer_move_ms(PeerTiming timing, int from, int to, int64_t bytes) override {
    return peers_.move_ms(timing, from, to, bytes);
  }
  double ping_pong_us(int from, int to, const std::string& what) override {
    return peers_.ping_pong_us(from, to, what);
  }
  Rung peer_atomics(int from, int to) override { return peers_.atomics(from, to); }
  Rung all_reduce(bool through_peers, uint64_t seed) override {
    return peers_.all_reduce(n_gpus(), through_peers, seed);
  }
  std::pair<Rung, std::string> nccl_all_reduce(uint64_t seed) override {
    const std::vector<KernelLibrary> found = find_nccl(python_prefixes());
    if (found.empty()) return {{"unsupported", 0, 0, "no NCCL"}, ""};
    const auto usable = [&](const KernelLibrary& library) {
      for (int gpu = 0; gpu < n_gpus(); ++gpu) {
        const int arch = cuda_.attribute(gpu, kMajor) * 10 + cuda_.attribute(gpu, kMinor);
        if (!has_kernels_for(library, arch)) return false;
      }
      return true;
    };
    const auto best = std::find_if(found.begin(), found.end(), usable);
    return peers_.nccl_all_reduce(best == found.end() ? found.front().path : best->path, n_gpus(),
                                  seed);
  }

 private:
  const std::string& bus(int gpu) const {
    if (gpu < 0 || gpu >= static_cast<int>(buses_.size())) fail("gpu{} is not there any more", gpu);
    return buses_[static_cast<size_t>(gpu)];
  }

  unsigned burn_blocks(int gpu) {
    return static_cast<unsigned>(cuda_.attribute(gpu, kSmCount)) * 8;
  }

  // Four numbers that keep the multiply-adds finite and the compiler from folding them; a sink.
  DevicePointer coefficients(int gpu) {
    DevicePointer& known = coefficients_[gpu];
    if (known == 0) {
      const float values[8] = {0.5f, 0.999f, 0.001f, -12345.0f, 0, 0, 0, 0};
      known = cuda_.allocate(gpu, sizeof(values));
      cuda_.to_device(gpu, known, values, sizeof(values));
    }
    return known;
  }

  static void burn_on(Cuda& cuda, int gpu, Rate rate, int rounds, unsigned blocks,
                      DevicePointer values) {
    DevicePointer sink = values + 16;
    cuda.launch(gpu, kernel_of(rate), blocks, kBurnThreads, {&values, &rounds, &sink});
  }
  void burn(int gpu, Rate rate, int rounds) {
    burn_on(cuda_, gpu, rate, rounds, burn_blocks(gpu), coefficients(gpu));
  }

  int rounds_for(int gpu, Rate rate, double wanted_ms) {
    int rounds = 64;
    for (;;) {
      const double ms = cuda_.timed_ms(gpu, [&] { burn(gpu, rate, rounds); });
      if (ms > wanted_ms / 4 || rounds > (1 << 26))
        return std::max(1, static_cast<int>(rounds * wanted_ms / std::max(ms, 1e-3)));
      rounds *= 4;
    }
  }

  SteadyClock::time_point start_ = SteadyClock::now();
  Cuda cuda_;
  Nvml nvml_;
  std::vector<std::string> buses_;
  RealMemory memory_;
  RealPeers peers_;
  double rate_mhz_ = 0;
  std::map<int, DevicePointer> coefficients_;
  std::map<int, std::unique_ptr<BackgroundLoad>> loads_;
};

}  // namespace

std::unique_ptr<Backend> open_real(const StepSpec&) {
  return std::make_unique<RealBackend>();
}

}  // namespace lockstep::probe
