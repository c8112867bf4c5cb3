#include "hardware-probe/observe/observations.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"

namespace nlohmann {
template <typename T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& out, const std::optional<T>& value) {
    if (value.has_value()) {
      out = *value;
    } else {
      out = nullptr;
    }
  }
  static void from_json(const json& in, std::optional<T>& value) {
    if (in.is_null()) {
      value.reset();
    } else {
      value = in.get<T>();
    }
  }
};
}  // namespace nlohmann

namespace lockstep::probe {

using Json = nlohmann::json;

NLOHMANN_JSON_SERIALIZE_ENUM(Mode, {{Mode::quick, "quick"},
                                    {Mode::standard, "standard"},
                                    {Mode::deep, "deep"}})
#define LOCKSTEP_FIELDS NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT
LOCKSTEP_FIELDS(KernelLine, t_s, bus, xid, text)
LOCKSTEP_FIELDS(HostFacts, os, kernel, cpu, virtualization, iommu, acs, acs_bridges, root,
                kernel_log, kernel_log_end)
LOCKSTEP_FIELDS(Visibility, sysfs, nvml, cuda, nvml_present, cuda_present, nvml_error, cuda_error)
LOCKSTEP_FIELDS(KernelLibrary, path, version, cuda, archs, ptx_archs, loader)
LOCKSTEP_FIELDS(StackFacts, driver_version, cuda_version, nccl, torch, kernel_archs, ptx)
LOCKSTEP_FIELDS(GpuIdentity, bus_id, pci_id, subsystem, name, serial, uuid, board_part, gpu_part,
                vbios, inforom, inforom_valid, compute_capability, sm_count, cores, bus_bits,
                l2_kib, max_sm_mhz, max_memory_mhz, fb_mib, bar1_mib, max_pcie_gen, max_pcie_width,
                slowdown_c, shutdown_c, max_operating_c, memory_max_c)
LOCKSTEP_FIELDS(GpuConfig, ecc_current, ecc_pending, persistence, mig, compute_mode, app_sm_mhz,
                default_app_sm_mhz, power_limit_w, power_default_w, other_processes)
LOCKSTEP_FIELDS(RetiredPage, cause, timestamp_s)
LOCKSTEP_FIELDS(GpuHistory, retired, retired_pending, volatile_corrected, volatile_uncorrected,
                aggregate_corrected, aggregate_uncorrected, remapped_corrected,
                remapped_uncorrected, banks_without_spare, remap_pending, remap_failed,
                sram_exceeded)
LOCKSTEP_FIELDS(Sample, t_s, sm_mhz, memory_mhz, power_w, temperature_c, memory_temperature_c,
                reasons)
LOCKSTEP_FIELDS(Soak, series, seconds, steady, thermal_violation_s, power_violation_s)
LOCKSTEP_FIELDS(PcieLink, gen, width, hops)
LOCKSTEP_FIELDS(TransferRates, h2d_gbps, d2h_gbps, bidirectional_gbps, wrong_words)
LOCKSTEP_FIELDS(AerCounts, correctable, uncorrectable)
LOCKSTEP_FIELDS(PcieErrors, replays_before, replays_after, aer_before, aer_after, minutes)
LOCKSTEP_FIELDS(MemoryBandwidth, read_gbps, write_gbps, copy_gbps, sm_mhz, memory_mhz, reasons,
                buffer_bytes)
LOCKSTEP_FIELDS(ChunkRate, offset_mib, gbps)
LOCKSTEP_FIELDS(MemoryError, offset, expected, actual, reread, pattern)
LOCKSTEP_FIELDS(MemoryTest, tested_bytes, total_bytes, patterns, error_words, errors,
                ecc_corrected_delta, ecc_uncorrected_delta, start_temperature_c, idle_s)
LOCKSTEP_FIELDS(SmReading, sm, runs, hash, wrong_runs, ms)
LOCKSTEP_FIELDS(SmProof, golden, matrix_units, cold, hot, pulse)
LOCKSTEP_FIELDS(ComputeRates, fp32_tflops, fp64_tflops, hmma_tflops, dp4a_tops, fp32_mhz, fp64_mhz,
                hmma_mhz, dp4a_mhz)
LOCKSTEP_FIELDS(NvlinkState, link, active, remote, mbps, crc_before, crc_after, replay_before,
                replay_after, recovery_before, recovery_after)
LOCKSTEP_FIELDS(NvlinkReport, links, load_s)
LOCKSTEP_FIELDS(GpuObservations, identity, config, history, idle, pcie_link, transfers, pcie_errors,
                memory_bandwidth, memory_map, memory_cold, memory_hot, bit_fade, sm_proof, rates,
                soak_solo, soak_all, nvlink)
LOCKSTEP_FIELDS(Rung, outcome, wrong_words, words, detail)
LOCKSTEP_FIELDS(PairObservations, from, to, can_access, caps, ancestor, nvlinks, rungs, copy_gbps,
                store_gbps, bidirectional_gbps, bounce_gbps, latency_us, copy_4k_us)
LOCKSTEP_FIELDS(Collective, own, nccl, control, nccl_version)
LOCKSTEP_FIELDS(Event, t_s, gpu, kind, xid)
LOCKSTEP_FIELDS(Step, check, target, outcome, detail, seconds)
LOCKSTEP_FIELDS(Observations, version, backend, mode, nonce, started, ended, host, visible, stack,
                gpus, pairs, collective, events, steps)
#undef LOCKSTEP_FIELDS

namespace {

constexpr int kMaxGpus = 64;

void refuse(const std::string& origin, const std::string& why) {
  fail_with(ExitCode::usage, "{}: {}", origin, why);
}

// What the checks index with must point at something.
void check_shape(const Observations& seen, const std::string& origin) {
  if (seen.version != 1) {
    refuse(origin,
           fmt::format("observations of version {}; this program reads version 1", seen.version));
  }
  if (seen.gpus.size() > kMaxGpus) refuse(origin, "more than 64 GPUs");
  const int n = static_cast<int>(seen.gpus.size());
  for (const PairObservations& pair : seen.pairs) {
    const bool valid = pair.from >= 0 && pair.from < n && pair.to >= 0 && pair.to < n;
    if (!valid || pair.from == pair.to) refuse(origin, "a pair names a GPU that is not listed");
  }
}

}  // namespace

const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::quick:
      return "quick";
    case Mode::standard:
      return "standard";
    case Mode::deep:
      return "deep";
  }
  return "?";
}

Mode mode_from_name(const std::string& name) {
  for (const Mode mode : {Mode::quick, Mode::standard, Mode::deep}) {
    if (name == mode_name(mode)) return mode;
  }
  fail_with(ExitCode::usage, "mode \"{}\" is not quick, standard or deep", name);
}

bool has_kernels_for(const KernelLibrary& library, int arch) {
  if (library.archs.empty() && library.ptx_archs.empty()) return true;
  const auto runs = [&](int code) { return code / 10 == arch / 10 && code <= arch; };
  const auto compiles = [&](int ptx) { return ptx <= arch; };
  return std::any_of(library.archs.begin(), library.archs.end(), runs) ||
         std::any_of(library.ptx_archs.begin(), library.ptx_archs.end(), compiles);
}

std::string gpu_target(int gpu) {
  return fmt::format("gpu{}", gpu);
}
std::string pair_target(int from, int to) {
  return fmt::format("gpu{}>gpu{}", from, to);
}

std::string observations_to_json(const Observations& observations, int indent) {
  return Json(observations).dump(indent, ' ', false, Json::error_handler_t::replace);
}

Observations observations_from_json(const std::string& text, const std::string& origin) {
  Observations seen;
  try {
    Json document = Json::parse(text);
    if (!document.is_object()) refuse(origin, "no JSON object");
    // A report carries its observations, so either file can be judged again.
    if (document.contains("observations")) document = document.at("observations");
    if (!document.is_object() || !document.contains("steps") || !document.contains("gpus")) {
      refuse(origin, "neither a record nor a report of lockstep-probe");
    }
    seen = document.get<Observations>();
  } catch (const Json::exception& error) {
    refuse(origin, fmt::format("not a probe record: {}", json_problem(error)));
  }
  check_shape(seen, origin);
  return seen;
}

}  // namespace lockstep::probe
