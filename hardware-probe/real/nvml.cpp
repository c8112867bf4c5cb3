#include "hardware-probe/real/nvml.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "hardware-probe/backend/backend.h"

namespace lockstep::probe {
namespace {

// The few structures of nvml.h that are needed, as its versioned symbols define them.
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct MemoryInfo {
  unsigned long long total, free, used;
};
struct Violation {
  unsigned long long reference_us, violation_ns;
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, status;
  union {
    unsigned number;
    unsigned long long wide;
  } value;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};
struct Histogram {
  unsigned max, high, partial, low, none;
};
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

constexpr int kOk = 0, kNotSupported = 3, kLost = 15, kCorruptInforom = 14;
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr unsigned kFieldMemoryTemperature = 82;
constexpr unsigned long long kEventXid = 8;
constexpr int kMostLinks = 18;

const char* ancestor_name(int level) {
  if (level <= 10) return "single";
  if (level == 20) return "multiple";
  if (level == 30) return "hostbridge";
  return level == 40 ? "node" : "system";
}

}  // namespace

std::string normal_bus_id(std::string bus) {
  std::transform(bus.begin(), bus.end(), bus.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  // NVML writes eight digits of domain, sysfs and CUDA four.
  if (bus.size() == 16) bus = bus.substr(4);
  return bus;
}

Nvml::Nvml() : library_("libnvidia-ml.so.1") {
  if (!library_.present()) {
    error_ = library_.error();
    return;
  }
  const int status = library_.call("nvmlInit_v2");
  initialised_ = status == kOk;
  if (!initialised_) error_ = fmt::format("nvmlInit_v2 gave status {}", status);
  if (initialised_) watch_xids();
}

Nvml::~Nvml() {
  if (initialised_) library_.call("nvmlShutdown");
}

Nvml::Handle Nvml::handle(const std::string& bus) {
  Handle device = nullptr;
  const int status = initialised_
                         ? library_.call("nvmlDeviceGetHandleByPciBusId_v2", bus.c_str(), &device)
                         : DynamicLibrary::kAbsent;
  if (status == kLost) throw DeviceLost(fmt::format("{} has fallen off the bus", bus));
  if (status != kOk) fail("NVML does not know {}", bus);
  return device;
}

void Nvml::watch_xids() {
  if (library_.call("nvmlEventSetCreate", &events_) != kOk) {
    events_ = nullptr;
    return;
  }
  for (const std::string& bus : bus_ids()) {
    library_.call("nvmlDeviceRegisterEvents", handle(bus), kEventXid, events_);
  }
}

std::vector<std::pair<std::string, int>> Nvml::xids() {
  std::vector<std::pair<std::string, int>> out;
  EventData data{};
  while (events_ != nullptr && library_.call("nvmlEventSetWait_v2", events_, &data, 0u) == kOk) {
    PciInfo pci{};
    if (data.type == kEventXid &&
        library_.call("nvmlDeviceGetPciInfo_v3", data.device, &pci) == kOk) {
      out.emplace_back(normal_bus_id(pci.bus_id), static_cast<int>(data.data));
    }
  }
  return out;
}

std::vector<std::string> Nvml::bus_ids() {
  std::vector<std::string> out;
  unsigned n = 0;
  if (!initialised_ || library_.call("nvmlDeviceGetCount_v2", &n) != kOk) return out;
  for (unsigned i = 0; i < n; ++i) {
    Handle device = nullptr;
    PciInfo pci{};
    if (library_.call("nvmlDeviceGetHandleByIndex_v2", i, &device) != kOk) continue;
    if (library_.call("nvmlDeviceGetPciInfo_v3", device, &pci) == kOk)
      out.push_back(normal_bus_id(pci.bus_id));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string Nvml::driver_version() {
  char text[96] = "";
  if (!initialised_ ||
      library_.call("nvmlSystemGetDriverVersion", &text[0], unsigned{sizeof(text)}) != kOk)
    return "";
  return text;
}

void Nvml::describe(const std::string& bus, GpuIdentity& out) {
  const Handle device = handle(bus);
  const auto text = [&](const char* function, Maybe<std::string>& to) {
    char buffer[96] = "";
    if (library_.call(function, device, &buffer[0], unsigned{sizeof(buffer)}) == kOk) to = buffer;
  };
  const auto number = [&](const char* function, Maybe<int>& to) {
    unsigned value = 0;
    if (library_.call(function, device, &value) == kOk) to = static_cast<int>(value);
  };
  const auto kind = [&](const char* function, int which, Maybe<int>& to) {
    unsigned value = 0;
    if (library_.call(function, device, which, &value) == kOk) to = static_cast<int>(value);
  };
  PciInfo pci{};
  if (library_.call("nvmlDeviceGetPciInfo_v3", device, &pci) == kOk) {
    out.pci_id = fmt::format("{:04x}:{:04x}", pci.device_id & 0xffffu, pci.device_id >> 16);
    out.subsystem =
        fmt::format("{:04x}:{:04x}", pci.subsystem_id & 0xffffu, pci.subsystem_id >> 16);
  }
  text("nvmlDeviceGetName", out.name);
  text("nvmlDeviceGetSerial", out.serial);
  text("nvmlDeviceGetUUID", out.uuid);
  text("nvmlDeviceGetBoardPartNumber", out.board_part);
  text("nvmlDeviceGetVbiosVersion", out.vbios);
  text("nvmlDeviceGetInforomImageVersion", out.inforom);
  const int inforom = library_.call("nvmlDeviceValidateInforom", device);
  if (inforom == kOk || inforom == kCorruptInforom) out.inforom_valid = inforom == kOk;
  number("nvmlDeviceGetNumGpuCores", out.cores);
  number("nvmlDeviceGetMemoryBusWidth", out.bus_bits);
  number("nvmlDeviceGetMaxPcieLinkWidth", out.max_pcie_width);
  number("nvmlDeviceGetGpuMaxPcieLinkGeneration", out.max_pcie_gen);
  kind("nvmlDeviceGetMaxClockInfo", kClockSm, out.max_sm_mhz);
  kind("nvmlDeviceGetMaxClockInfo", kClockMemory, out.max_memory_mhz);
  kind("nvmlDeviceGetTemperatureThreshold", 0, out.shutdown_c);
  kind("nvmlDeviceGetTemperatureThreshold", 1, out.slowdown_c);
  kind("nvmlDeviceGetTemperatureThreshold", 2, out.memory_max_c);
  kind("nvmlDeviceGetTemperatureThreshold", 3, out.max_operating_c);
  MemoryInfo memory{};
  if (library_.call("nvmlDeviceGetMemoryInfo", device, &memory) == kOk)
    out.fb_mib = static_cast<int64_t>(memory.total >> 20);
  if (library_.call("nvmlDeviceGetBAR1MemoryInfo", device, &memory) == kOk)
    out.bar1_mib = static_cast<int64_t>(memory.total >> 20);
}

GpuConfig Nvml::config(const std::string& bus) {
  const Handle device = handle(bus);
  GpuConfig out;
  int current = 0, pending = 0;
  if (library_.call("nvmlDeviceGetEccMode", device, &current, &pending) == kOk) {
    out.ecc_current = current != 0;
    out.ecc_pending = pending != 0;
  }
  if (library_.call("nvmlDeviceGetPersistenceMode", device, &current) == kOk)
    out.persistence = current != 0;
  if (library_.call("nvmlDeviceGetComputeMode", device, &current) == kOk) {
    out.compute_mode = current == 0 ? "default" : current == 2 ? "prohibited" : "exclusive";
  }
  unsigned a = 0, b = 0;
  if (library_.call("nvmlDeviceGetMigMode", device, &a, &b) == kOk) out.mig = a != 0;
  if (library_.call("nvmlDeviceGetApplicationsClock", device, kClockSm, &a) == kOk)
    out.app_sm_mhz = static_cast<int>(a);
  if (library_.call("nvmlDeviceGetDefaultApplicationsClock", device, kClockSm, &a) == kOk)
    out.default_app_sm_mhz = static_cast<int>(a);
  if (library_.call("nvmlDeviceGetPowerManagementLimit", device, &a) == kOk)
    out.power_limit_w = a / 1000.0;
  if (library_.call("nvmlDeviceGetPowerManagementDefaultLimit", device, &a) == kOk)
    out.power_default_w = a / 1000.0;
  ProcessInfo processes[64];
  unsigned n = 64;
  if (library_.call("nvmlDeviceGetComputeRunningProcesses_v3", device, &n, &processes[0]) == kOk) {
    out.other_processes =
        static_cast<int>(std::count_if(processes, processes + n, [](const ProcessInfo& process) {
          return process.pid != static_cast<unsigned>(::getpid());
        }));
  }
  return out;
}

GpuHistory Nvml::history(const std::string& bus) {
  const Handle device = handle(bus);
  GpuHistory out;
  const auto ecc = [&](int type, int counter, Maybe<int64_t>& to) {
    unsigned long long value = 0;
    if (library_.call("nvmlDeviceGetTotalEccErrors", device, type, counter, &value) == kOk)
      to = static_cast<int64_t>(value);
  };
  ecc(0, 0, out.volatile_corrected);
  ecc(1, 0, out.volatile_uncorrected);
  ecc(0, 1, out.aggregate_corrected);
  ecc(1, 1, out.aggregate_uncorrected);
  std::vector<RetiredPage> pages;
  bool told = true;
  for (int cause = 0; cause < 2; ++cause) {
    unsigned long long addresses[128], times[128];
    unsigned n = 128;
    told = library_.call("nvmlDeviceGetRetiredPages_v2", device, cause, &n, &addresses[0],
                         &times[0]) == kOk &&
           told;
    for (unsigned i = 0; told && i < n; ++i)
      pages.push_back({cause == 0 ? "sbe" : "dbe", static_cast<int64_t>(times[i])});
  }
  if (told) out.retired = pages;
  int pending = 0;
  if (library_.call("nvmlDeviceGetRetiredPagesPendingStatus", device, &pending) == kOk)
    out.retired_pending = pending != 0;
  unsigned corrected = 0, uncorrected = 0, waits = 0, failed = 0;
  if (library_.call("nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &waits,
                    &failed) == kOk) {
    out.remapped_corrected = static_cast<int>(corrected);
    out.remapped_uncorrected = static_cast<int>(uncorrected);
    out.remap_pending = waits != 0;
    out.remap_failed = failed != 0;
  }
  Histogram histogram{};
  if (library_.call("nvmlDeviceGetRowRemapperHistogram", device, &histogram) == kOk)
    out.banks_without_spare = static_cast<int>(histogram.none);
  return out;
}

Sample Nvml::sample(const std::string& bus) {
  const Handle device = handle(bus);
  Sample out;
  unsigned value = 0;
  const int status = library_.call("nvmlDeviceGetTemperature", device, 0, &value);
  if (status == kLost) throw DeviceLost(fmt::format("{} has fallen off the bus", bus));
  if (status == kOk) out.temperature_c = value;
  if (library_.call("nvmlDeviceGetClockInfo", device, kClockSm, &value) == kOk) out.sm_mhz = value;
  if (library_.call("nvmlDeviceGetClockInfo", device, kClockMemory, &value) == kOk)
    out.memory_mhz = value;
  if (library_.call("nvmlDeviceGetPowerUsage", device, &value) == kOk) out.power_w = value / 1000.0;
  FieldValue field{};
  field.field = kFieldMemoryTemperature;
  if (library_.call("nvmlDeviceGetFieldValues", device, 1, &field) == kOk && field.status == kOk &&
      field.value.number > 0) {
    out.memory_temperature_c = field.value.number;
  }
  unsigned long long reasons = 0;
  // The name changed with driver 535; both mean the same bits.
  const bool told =
      library_.call("nvmlDeviceGetCurrentClocksEventReasons", device, &reasons) == kOk ||
      library_.call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons) == kOk;
  if (told) out.reasons = static_cast<int64_t>(reasons);
  return out;
}

PcieLink Nvml::pcie_link(const std::string& bus) {
  const Handle device = handle(bus);
  PcieLink out;
  unsigned value = 0;
  if (library_.call("nvmlDeviceGetCurrPcieLinkGeneration", device, &value) == kOk)
    out.gen = static_cast<int>(value);
  if (library_.call("nvmlDeviceGetCurrPcieLinkWidth", device, &value) == kOk)
    out.width = static_cast<int>(value);
  return out;
}

Maybe<int64_t> Nvml::pcie_replays(const std::string& bus) {
  unsigned value = 0;
  if (library_.call("nvmlDeviceGetPcieReplayCounter", handle(bus), &value) != kOk) return {};
  return value;
}

std::pair<Maybe<double>, Maybe<double>> Nvml::violation_s(const std::string& bus) {
  const Handle device = handle(bus);
  std::pair<Maybe<double>, Maybe<double>> out;
  Violation violation{};
  if (library_.call("nvmlDeviceGetViolationStatus", device, 1, &violation) == kOk)
    out.first = static_cast<double>(violation.violation_ns) * 1e-9;
  if (library_.call("nvmlDeviceGetViolationStatus", device, 0, &violation) == kOk)
    out.second = static_cast<double>(violation.violation_ns) * 1e-9;
  return out;
}

std::vector<NvlinkState> Nvml::nvlinks(const std::string& bus) {
  const Handle device = handle(bus);
  std::vector<NvlinkState> out;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int active = 0;
    if (library_.call("nvmlDeviceGetNvLinkState", device, link, &active) != kOk) continue;
    NvlinkState state;
    state.link = static_cast<int>(link);
    state.active = active != 0;
    PciInfo remote{};
    if (state.active &&
        library_.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, link, &remote) == kOk)
      state.remote = normal_bus_id(remote.bus_id);
    const auto counter = [&](int which, Maybe<int64_t>& to) {
      unsigned long long value = 0;
      if (library_.call("nvmlDeviceGetNvLinkErrorCounter", device, link, which, &value) == kOk)
        to = static_cast<int64_t>(value);
    };
    counter(0, state.replay_before);
    counter(1, state.recovery_before);
    counter(2, state.crc_before);
    out.push_back(state);
  }
  return out;
}

void Nvml::describe_pair(const std::string& from, const std::string& to, PairObservations& out) {
  const Handle a = handle(from), b = handle(to);
  const char* names[] = {"read", "write", "nvlink", "atomics"};
  for (int i = 0; i < 4; ++i) {
    int status = -1;
    if (library_.call("nvmlDeviceGetP2PStatus", a, b, i, &status) == kOk)
      out.caps[names[i]] = status == 0 ? "ok" : fmt::format("status {}", status);
  }
  int level = 0;
  if (library_.call("nvmlDeviceGetTopologyCommonAncestor", a, b, &level) == kOk)
    out.ancestor = ancestor_name(level);
  const auto nvlink = out.caps.find("nvlink");
  if (nvlink == out.caps.end() || nvlink->second != "ok") return;
  int direct = 0, active = 0;
  for (const NvlinkState& link : nvlinks(from)) {
    active += link.active ? 1 : 0;
    direct += link.active && link.remote == to ? 1 : 0;
  }
  // Links that end at a switch reach every card behind it.
  out.nvlinks = direct > 0 ? direct : active;
  out.ancestor = "nvlink";
}

}  // namespace lockstep::probe
