#include "hardware-probe/collect/measure.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "hardware-probe/kernels/golden.h"
#include "hardware-probe/kernels/workload.h"

namespace lockstep::probe {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kTransferBytes = 256 * kMiB;
constexpr int64_t kSmallestStream = 1024 * kMiB;
constexpr int kWarmUps = 3;
constexpr size_t kErrorsKept = 16;
constexpr double kTotalShare = 0.995;  // asked for; the backend steps down to what it gets

double gbps_of(int64_t bytes, double ms) {
  return ms > 0 ? static_cast<double>(bytes) / ms / 1e6 : 0;
}

// More than 64 times the L2, so that the cache serves next to nothing.
int64_t stream_bytes(Backend& backend, int gpu, int64_t held) {
  const int64_t l2 = int64_t{backend.identity(gpu).l2_kib.value_or(6144)} * 1024;
  return std::min(held / 2, std::max(kSmallestStream, 64 * l2)) / kMiB * kMiB;
}

std::vector<double> stream_samples(Backend& backend, int gpu, Stream stream, int64_t bytes,
                                   int samples) {
  std::vector<double> out;
  const int64_t moved = stream == Stream::copy ? 2 * bytes : bytes;
  for (int i = -kWarmUps; i < samples; ++i) {
    const double ms = backend.stream_ms(gpu, stream, 0, bytes);
    if (i >= 0) out.push_back(gbps_of(moved, ms));
  }
  return out;
}

class HeldMemory {
 public:
  HeldMemory(Backend& backend, int gpu)
      : backend_(backend), gpu_(gpu), bytes_(backend.hold_memory(gpu, kTotalShare)) {
    if (bytes_ < 2 * kMiB) fail("no device memory could be held");
  }
  ~HeldMemory() {
    try {
      backend_.release_memory(gpu_);
    } catch (const Error&) {
      // The card is gone; whoever lost it has reported that.
    }
  }
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  int64_t bytes() const { return bytes_; }

 private:
  Backend& backend_;
  int gpu_;
  int64_t bytes_;
};

struct NamedPattern {
  const char* name;
  Pattern pattern;
};

std::vector<NamedPattern> patterns_of_round(uint64_t seed, int round) {
  const uint64_t drawn = mix64(seed + static_cast<uint64_t>(round) * 977u);
  return {{"address", {kPatternAddress, 0}},
          {"walking ones", {kPatternWalking, 0}},
          {"walking zeros", {kPatternWalking, 1}},
          {"zeros", {kPatternSolid, 0}},
          {"ones", {kPatternSolid, ~uint64_t{0}}},
          {"moving byte", {kPatternSolid, 0x0101010101010101ull << (round & 7)}},
          {"inverted byte", {kPatternSolid, ~(0x0101010101010101ull << (round & 7))}},
          {"modulo 20", {kPatternModulo20, drawn}},
          {"random", {kPatternRandom, drawn}}};
}

void count_errors(const Mismatches& wrong, const char* name, MemoryTest& test) {
  test.error_words += wrong.count;
  for (MemoryError error : wrong.first) {
    if (test.errors.size() >= kErrorsKept) return;
    error.pattern = name;
    test.errors.push_back(error);
  }
}

Maybe<int64_t> grown(const Maybe<int64_t>& before, const Maybe<int64_t>& after) {
  if (!before.has_value() || !after.has_value()) return {};
  return *after - *before;
}

void fold_runs(const std::vector<SmRun>& runs, uint64_t golden,
               std::map<int, std::vector<double>>& times, std::map<int, SmReading>& readings) {
  for (const SmRun& run : runs) {
    SmReading& reading = readings[run.sm];
    reading.sm = run.sm;
    if (reading.runs == 0 || (reading.wrong_runs == 0 && run.hash != golden))
      reading.hash = run.hash;
    ++reading.runs;
    reading.wrong_runs += run.hash != golden ? 1 : 0;
    times[run.sm].push_back(run.ms);
  }
}

std::vector<SmReading> read_sms(Backend& backend, int gpu, int rounds, uint64_t seed,
                                uint64_t golden, bool pulses) {
  std::map<int, std::vector<double>> times;
  std::map<int, SmReading> readings;
  for (int round = 0; round < rounds; ++round) {
    if (pulses) {
      // Marginal units fail at the edges of load: rest, burst, and the proof right at the edge.
      backend.set_load(gpu, Load::none);
      backend.sleep_s(0.5);
      backend.set_load(gpu, Load::matrix);
      backend.sleep_s(0.5);
      backend.set_load(gpu, Load::none);
    }
    fold_runs(backend.sm_runs(gpu, seed), golden, times, readings);
  }
  std::vector<SmReading> out;
  for (auto& [sm, reading] : readings) {
    std::vector<double>& series = times[sm];
    std::nth_element(series.begin(),
                     series.begin() + static_cast<std::ptrdiff_t>(series.size() / 2), series.end());
    reading.ms = series[series.size() / 2];
    out.push_back(reading);
  }
  return out;
}

// Less than 1 degree a minute and clocks within 1 % over the last 30 s.
bool is_steady(const Soak& soak) {
  constexpr double kWindow_s = 30;
  std::vector<const Sample*> window;
  for (auto sample = soak.series.rbegin(); sample != soak.series.rend(); ++sample) {
    if (sample->t_s < soak.series.back().t_s - kWindow_s) break;
    window.push_back(&*sample);
  }
  if (window.size() < 8) return false;
  const double drift = std::abs(window.back()->temperature_c.value_or(0) -
                                window.front()->temperature_c.value_or(0));
  double sum = 0, squares = 0;
  for (const Sample* sample : window) {
    sum += sample->sm_mhz.value_or(0);
    squares += sample->sm_mhz.value_or(0) * sample->sm_mhz.value_or(0);
  }
  const double n = static_cast<double>(window.size());
  const double mean = sum / n;
  const double deviation = std::sqrt(std::max(0.0, squares / n - mean * mean));
  return drift <= 0.5 && deviation <= 0.01 * mean;
}

class LoadGuard {
 public:
  LoadGuard(Backend& backend, const std::vector<int>& gpus) : backend_(backend), gpus_(gpus) {}
  ~LoadGuard() {
    for (const int gpu : gpus_) {
      try {
        backend_.set_load(gpu, Load::none);
      } catch (const Error&) {
        // A lost card carries no load.
      }
    }
  }
  LoadGuard(const LoadGuard&) = delete;
  LoadGuard& operator=(const LoadGuard&) = delete;

 private:
  Backend& backend_;
  std::vector<int> gpus_;
};

}  // namespace

uint64_t seed_of(const std::string& nonce, const std::string& purpose) {
  uint64_t seed = 0x6c6f636b73746570ull;
  for (const char c : nonce + "/" + purpose)
    seed = mix64(seed ^ static_cast<uint8_t>(c)) + 0x9e3779b97f4a7c15ull;
  return seed;
}

TransferRates measure_transfers(Backend& backend, int gpu, const Budget& budget, uint64_t seed) {
  TransferRates out;
  out.wrong_words = backend.transfer_wrong_words(gpu, {kPatternRandom, seed}, kTransferBytes / 4);
  for (int i = -1; i < budget.transfer_samples; ++i) {
    const double up =
        gbps_of(kTransferBytes, backend.transfer_ms(gpu, Transfer::to_device, kTransferBytes));
    const double down =
        gbps_of(kTransferBytes, backend.transfer_ms(gpu, Transfer::to_host, kTransferBytes));
    const double both =
        gbps_of(2 * kTransferBytes, backend.transfer_ms(gpu, Transfer::both, kTransferBytes));
    if (i < 0) continue;
    out.h2d_gbps.push_back(up);
    out.d2h_gbps.push_back(down);
    out.bidirectional_gbps.push_back(both);
  }
  return out;
}

PcieLink measure_link_under_load(Backend& backend, int gpu) {
  // Links rest at generation 1 when idle; look while data moves and keep the best of a few looks.
  PcieLink best;
  for (int i = 0; i < 4; ++i) {
    backend.transfer_ms(gpu, Transfer::to_device, kTransferBytes);
    const PcieLink link = backend.pcie_link(gpu);
    if (link.gen.value_or(0) * 100 + link.width.value_or(0) >=
        best.gen.value_or(0) * 100 + best.width.value_or(0))
      best = link;
  }
  return best;
}

MemoryBandwidth measure_bandwidth(Backend& backend, int gpu, const Budget& budget) {
  const HeldMemory held(backend, gpu);
  MemoryBandwidth out;
  out.buffer_bytes = stream_bytes(backend, gpu, held.bytes());
  out.read_gbps =
      stream_samples(backend, gpu, Stream::read, out.buffer_bytes, budget.bandwidth_samples);
  const Sample during = backend.sample(gpu);
  out.write_gbps =
      stream_samples(backend, gpu, Stream::write, out.buffer_bytes, budget.bandwidth_samples);
  out.copy_gbps =
      stream_samples(backend, gpu, Stream::copy, out.buffer_bytes, budget.bandwidth_samples);
  out.sm_mhz = during.sm_mhz;
  out.memory_mhz = during.memory_mhz;
  out.reasons = during.reasons;
  return out;
}

std::vector<ChunkRate> measure_chunks(Backend& backend, int gpu, const Budget& budget) {
  const HeldMemory held(backend, gpu);
  const int64_t chunk = held.bytes() / budget.chunks / kMiB * kMiB;
  if (chunk == 0) fail("too little device memory for {} chunks", budget.chunks);
  std::vector<ChunkRate> out;
  backend.stream_ms(gpu, Stream::read, 0, chunk);
  for (int i = 0; i < budget.chunks; ++i) {
    double best = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      best = std::max(best, gbps_of(chunk, backend.stream_ms(gpu, Stream::read, i * chunk, chunk)));
    }
    out.push_back({i * chunk / kMiB, best});
  }
  return out;
}

MemoryTest test_memory(Backend& backend, int gpu, int rounds, double preheat_s, uint64_t seed) {
  if (preheat_s > 0) {
    const LoadGuard guard(backend, {gpu});
    backend.set_load(gpu, Load::memory);
    backend.sleep_s(preheat_s / 2);
    backend.set_load(gpu, Load::matrix);
    backend.sleep_s(preheat_s / 2);
  }
  const GpuHistory before = backend.history(gpu);
  MemoryTest test;
  test.start_temperature_c = backend.sample(gpu).temperature_c.value_or(0);
  test.total_bytes = backend.identity(gpu).fb_mib.value_or(0) * kMiB;
  const HeldMemory held(backend, gpu);
  test.tested_bytes = held.bytes();
  for (int round = 0; round < rounds; ++round) {
    for (const NamedPattern& named : patterns_of_round(seed, round)) {
      backend.fill(gpu, named.pattern);
      count_errors(backend.verify(gpu, named.pattern), named.name, test);
      if (round == 0) test.patterns.push_back(named.name);
    }
  }
  const GpuHistory after = backend.history(gpu);
  test.ecc_corrected_delta = grown(before.volatile_corrected, after.volatile_corrected);
  test.ecc_uncorrected_delta = grown(before.volatile_uncorrected, after.volatile_uncorrected);
  return test;
}

MemoryTest test_fading(Backend& backend, int gpu, double idle_s, uint64_t seed) {
  MemoryTest test;
  test.total_bytes = backend.identity(gpu).fb_mib.value_or(0) * kMiB;
  const HeldMemory held(backend, gpu);
  test.tested_bytes = held.bytes();
  test.idle_s = idle_s;
  for (const uint64_t inverted : {uint64_t{0}, ~uint64_t{0}}) {
    const Pattern pattern{kPatternSolid, seed ^ inverted};
    backend.fill(gpu, pattern);
    backend.sleep_s(idle_s / 2);
    count_errors(backend.verify(gpu, pattern), "fade", test);
    test.patterns.push_back(inverted == 0 ? "fade" : "fade inverted");
  }
  return test;
}

SmProof prove_sms(Backend& backend, int gpu, const Budget& budget, uint64_t seed) {
  SmProof proof;
  proof.matrix_units = backend.has_matrix_units(gpu);
  proof.golden = golden_sm_hash(seed, proof.matrix_units);
  proof.cold = read_sms(backend, gpu, budget.sm_rounds, seed, proof.golden, false);
  if (budget.sm_hot_rounds > 0) {
    const LoadGuard guard(backend, {gpu});
    backend.set_load(gpu, Load::matrix);
    backend.sleep_s(budget.preheat_s);
    backend.set_load(gpu, Load::none);
    proof.hot = read_sms(backend, gpu, budget.sm_hot_rounds, seed, proof.golden, false);
    proof.pulse = read_sms(backend, gpu, budget.sm_pulses, seed, proof.golden, true);
  }
  return proof;
}

ComputeRates measure_rates(Backend& backend, int gpu) {
  const auto measure = [&](Rate rate, Maybe<double>& tflops, Maybe<double>& mhz) {
    tflops = backend.tflops(gpu, rate);
    if (const double clock = backend.rate_sm_mhz(gpu); clock > 0) mhz = clock;
  };
  ComputeRates out;
  measure(Rate::fp32, out.fp32_tflops, out.fp32_mhz);
  measure(Rate::fp64, out.fp64_tflops, out.fp64_mhz);
  if (backend.has_matrix_units(gpu)) measure(Rate::matrix, out.hmma_tflops, out.hmma_mhz);
  measure(Rate::dp4a, out.dp4a_tops, out.dp4a_mhz);
  return out;
}

std::vector<Sample> watch_idle(Backend& backend, int gpu, double seconds) {
  std::vector<Sample> series;
  const double start = backend.now_s();
  do {
    series.push_back(backend.sample(gpu));
    series.back().t_s = backend.now_s() - start;
    backend.sleep_s(1.0);
  } while (backend.now_s() - start < seconds);
  return series;
}

std::vector<Soak> soak(Backend& backend, const std::vector<int>& gpus, double min_s, double max_s,
                       double hz) {
  const LoadGuard guard(backend, gpus);
  std::vector<Soak> out(gpus.size());
  std::vector<std::pair<Maybe<double>, Maybe<double>>> before;
  for (const int gpu : gpus) {
    before.push_back(backend.violation_s(gpu));
    backend.set_load(gpu, Load::matrix);
  }
  const double start = backend.now_s();
  bool steady = false;
  while (!steady && backend.now_s() - start < max_s) {
    backend.sleep_s(1.0 / hz);
    steady = backend.now_s() - start >= min_s;
    for (size_t i = 0; i < gpus.size(); ++i) {
      Sample sample = backend.sample(gpus[i]);
      sample.t_s = backend.now_s() - start;
      out[i].series.push_back(sample);
      out[i].steady = is_steady(out[i]);
      steady = steady && out[i].steady;
    }
  }
  for (size_t i = 0; i < gpus.size(); ++i) {
    out[i].seconds = backend.now_s() - start;
    const auto after = backend.violation_s(gpus[i]);
    if (after.first && before[i].first)
      out[i].thermal_violation_s = *after.first - *before[i].first;
    if (after.second && before[i].second)
      out[i].power_violation_s = *after.second - *before[i].second;
  }
  return out;
}

NvlinkReport watch_nvlinks(Backend& backend, int gpu, int n_gpus, double load_s) {
  NvlinkReport out;
  out.links = backend.nvlinks(gpu);
  const int peer = n_gpus > 1 ? (gpu == 0 ? 1 : 0) : -1;
  if (peer >= 0 && !out.links.empty() &&
      backend.pair_static(gpu, peer).can_access.value_or(false)) {
    backend.open_peers(gpu, peer, kTransferBytes);
    const double start = backend.now_s();
    while (backend.now_s() - start < load_s) {
      backend.peer_move_ms(PeerTiming::both_ways, gpu, peer, kTransferBytes);
    }
    out.load_s = backend.now_s() - start;
    backend.close_peers();
  }
  for (const NvlinkState& now : backend.nvlinks(gpu)) {
    for (NvlinkState& link : out.links) {
      if (link.link != now.link) continue;
      link.crc_after = now.crc_before;
      link.replay_after = now.replay_before;
      link.recovery_after = now.recovery_before;
    }
  }
  return out;
}

}  // namespace lockstep::probe
