// Everything that a probe run saw, and nothing that it concluded. Backends fill it, checks read it,
// a record stores it and a replay judges it again. An empty optional means "asked, no answer" or
// "not asked"; which of the two it was is in `steps`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::probe {

template <typename T>
using Maybe = std::optional<T>;

enum class Mode { quick, standard, deep };

// A line of the kernel log that speaks of an NVIDIA card.
struct KernelLine {
  double t_s = 0;   // since the machine started
  std::string bus;  // "0000:3b:00.0"; empty when the line names no card
  int xid = 0;      // 0: no Xid
  std::string text;
};

struct HostFacts {
  std::string os, kernel, cpu, virtualization;  // virtualization: "" on bare metal
  std::string iommu;                            // "off", "passthrough", "translated", "unknown"
  std::string acs;                              // "off", "redirecting", "unknown" (needs root)
  std::vector<std::string> acs_bridges;         // bridges above the cards that redirect
  bool root = false;
  // At the start and at the end of the run; empty where this user may not read it.
  Maybe<std::vector<KernelLine>> kernel_log, kernel_log_end;
};

// PCI bus ids as each layer lists them ("0000:3b:00.0").
struct Visibility {
  std::vector<std::string> sysfs, nvml, cuda;
  bool nvml_present = false, cuda_present = false;
  std::string nvml_error, cuda_error;
};

// A library with kernels of its own: NCCL, PyTorch.
struct KernelLibrary {
  std::string path, version, cuda;
  // Compute capabilities x 10 of the machine code and of the PTX in its fat binaries; a hint.
  std::vector<int> archs, ptx_archs;
  bool loader = false;  // what a program gets that names no path
};

// Whether its machine code or its PTX runs on a card of this compute capability x 10. Machine code
// runs on later minor versions of its own major one, PTX on everything later. True when the
// library's architectures are unknown.
bool has_kernels_for(const KernelLibrary& library, int arch);

struct StackFacts {
  std::string driver_version;  // "580.95.05"; empty without a driver
  Maybe<int> cuda_version;     // driver API version, 12040 = 12.4
  std::vector<KernelLibrary> nccl, torch;
  std::vector<int> kernel_archs;  // architectures of the kernels in this program
  bool ptx = false;
};

struct GpuIdentity {
  std::string bus_id, pci_id, subsystem;  // ids as "10de:1db5"
  Maybe<std::string> name, serial, uuid, board_part, gpu_part, vbios, inforom;
  Maybe<bool> inforom_valid;
  Maybe<std::string> compute_capability;  // "7.0"
  Maybe<int> sm_count, cores, bus_bits, l2_kib, max_sm_mhz, max_memory_mhz;
  Maybe<int64_t> fb_mib, bar1_mib;
  Maybe<int> max_pcie_gen, max_pcie_width;
  Maybe<int> slowdown_c, shutdown_c, max_operating_c, memory_max_c;
};

struct GpuConfig {
  Maybe<bool> ecc_current, ecc_pending, persistence, mig;
  Maybe<std::string> compute_mode;
  Maybe<int> app_sm_mhz, default_app_sm_mhz;
  Maybe<double> power_limit_w, power_default_w;
  Maybe<int> other_processes;
};

struct RetiredPage {
  std::string cause;        // "sbe" (two single-bit errors) or "dbe" (one double-bit error)
  int64_t timestamp_s = 0;  // Unix time; 0 = the driver gave none
};

struct GpuHistory {
  Maybe<std::vector<RetiredPage>> retired;
  Maybe<bool> retired_pending;
  Maybe<int64_t> volatile_corrected, volatile_uncorrected, aggregate_corrected,
      aggregate_uncorrected;
  Maybe<int> remapped_corrected, remapped_uncorrected, banks_without_spare;
  Maybe<bool> remap_pending, remap_failed, sram_exceeded;
};

// One reading of the live state. reasons: NVML clock event bits.
struct Sample {
  double t_s = 0;
  Maybe<double> sm_mhz, memory_mhz, power_w, temperature_c, memory_temperature_c;
  Maybe<int64_t> reasons;
};

struct Soak {
  std::vector<Sample> series;
  double seconds = 0;
  bool steady = false;
  Maybe<double> thermal_violation_s,
      power_violation_s;  // driver counters, difference over the soak
};

struct PcieLink {
  Maybe<int> gen, width;          // under load
  std::vector<std::string> hops;  // "bus id: gen G xW of gen G xW", upstream to the root
};

struct TransferRates {
  std::vector<double> h2d_gbps, d2h_gbps, bidirectional_gbps;
  int64_t wrong_words = 0;
};

// What the kernel has counted of PCIe errors (AER) at the card and at every bridge above it.
struct AerCounts {
  int64_t correctable = 0, uncorrectable = 0;
};

struct PcieErrors {
  Maybe<int64_t> replays_before, replays_after;
  Maybe<AerCounts> aer_before, aer_after;
  double minutes = 0;
};

struct MemoryBandwidth {
  std::vector<double> read_gbps, write_gbps, copy_gbps;  // copy counts bytes read plus written
  Maybe<double> sm_mhz, memory_mhz;
  Maybe<int64_t> reasons;
  int64_t buffer_bytes = 0;
};

struct ChunkRate {
  int64_t offset_mib = 0;
  double gbps = 0;
};

struct MemoryError {
  int64_t offset = 0;  // byte offset in the tested memory
  uint64_t expected = 0, actual = 0, reread = 0;
  std::string pattern;
};

struct MemoryTest {
  int64_t tested_bytes = 0, total_bytes = 0;
  std::vector<std::string> patterns;
  int64_t error_words = 0;
  std::vector<MemoryError> errors;  // the first few
  Maybe<int64_t> ecc_corrected_delta, ecc_uncorrected_delta;
  double start_temperature_c = 0;
  double idle_s = 0;  // bit fade: time between write and read
};

struct SmReading {
  int sm = 0;
  int runs = 0;
  uint64_t hash = 0;  // of the first wrong run, else of all
  int wrong_runs = 0;
  double ms = 0;  // median
};

struct SmProof {
  uint64_t golden = 0;  // computed on the host from the run's nonce
  bool matrix_units = false;
  std::vector<SmReading> cold, hot, pulse;
};

struct ComputeRates {
  Maybe<double> fp32_tflops, fp64_tflops, hmma_tflops, dp4a_tops;
  // The clock during each: matrix work may run slower under the power limit.
  Maybe<double> fp32_mhz, fp64_mhz, hmma_mhz, dp4a_mhz;
};

struct NvlinkState {
  int link = 0;
  bool active = false;
  std::string remote;  // bus id
  Maybe<int> mbps;     // one direction
  Maybe<int64_t> crc_before, crc_after, replay_before, replay_after, recovery_before,
      recovery_after;
};

struct NvlinkReport {
  std::vector<NvlinkState> links;
  double load_s = 0;
};

struct GpuObservations {
  GpuIdentity identity;
  Maybe<GpuConfig> config;
  Maybe<GpuHistory> history;
  Maybe<std::vector<Sample>> idle;
  Maybe<PcieLink> pcie_link;
  Maybe<TransferRates> transfers;
  Maybe<PcieErrors> pcie_errors;
  Maybe<MemoryBandwidth> memory_bandwidth;
  Maybe<std::vector<ChunkRate>> memory_map;
  Maybe<MemoryTest> memory_cold, memory_hot, bit_fade;
  Maybe<SmProof> sm_proof;
  Maybe<ComputeRates> rates;
  Maybe<Soak> soak_solo, soak_all;
  Maybe<NvlinkReport> nvlink;
};

// What became of one rung of the P2P ladder.
struct Rung {
  std::string outcome;  // "ok", "wrong", "hang", "unsupported", "error"
  int64_t wrong_words = 0, words = 0;
  std::string detail;
};

// Directed: `from` writes to or reads from `to`; the owner of the memory always verifies.
struct PairObservations {
  int from = 0, to = 0;
  Maybe<bool> can_access;
  std::map<std::string, std::string> caps;  // NVML P2P capability -> status
  std::string ancestor;  // "nvlink", "single", "multiple", "hostbridge", "node", "system"
  int nvlinks = 0;
  std::map<std::string, Rung> rungs;  // "copy", "store", "load", "pingpong", "atomics"
  std::vector<double> copy_gbps, store_gbps, bidirectional_gbps, bounce_gbps;
  std::map<std::string, double> latency_us;  // "flag", "64", "4096", "65536": one way, median
  Maybe<double> copy_4k_us;                  // one 4 KiB copy and its synchronization
};

struct Collective {
  Rung own, nccl, control;  // control: the same sums with peer access switched off
  std::string nccl_version;
};

struct Event {
  double t_s = 0;
  int gpu = -1;
  std::string kind;  // "xid", "lost"
  int xid = 0;
};

// What became of one thing that this mode wanted to do.
struct Step {
  std::string check;    // "C12"
  std::string target;   // "host", "gpu0", "gpu0>gpu1"
  std::string outcome;  // "done", "unsupported", "failed", "deadline", "lost", "interrupted"
  std::string detail;
  double seconds = 0;
};

struct Observations {
  int version = 1;
  std::string backend;  // "real" or "sim"
  Mode mode = Mode::quick;
  std::string nonce;
  std::string started, ended;  // UTC, ISO 8601; empty for sim, whose reports are reproducible
  HostFacts host;
  Visibility visible;
  StackFacts stack;
  std::vector<GpuObservations> gpus;
  std::vector<PairObservations> pairs;
  Maybe<Collective> collective;
  std::vector<Event> events;
  std::vector<Step> steps;
};

const char* mode_name(Mode mode);
// Throws Error (usage) for another word.
Mode mode_from_name(const std::string& name);

std::string gpu_target(int gpu);
std::string pair_target(int from, int to);

// Canonical text (sorted keys). Reading throws Error with one line that names `origin`.
std::string observations_to_json(const Observations& observations, int indent = -1);
Observations observations_from_json(const std::string& text, const std::string& origin);

}  // namespace lockstep::probe
