#include "hardware-probe/real/system_facts.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "engine/base/error.h"
#include "hardware-probe/real/kernel_answers.h"

namespace lockstep::probe {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKernelLinesKept = 256;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string field_of(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t start = line.find_first_of(":=");
    if (start == std::string::npos) continue;
    std::string value = line.substr(line.find_first_not_of(" \t\"", start + 1) == std::string::npos
                                        ? start
                                        : line.find_first_not_of(" \t\"", start + 1));
    while (!value.empty() && (value.back() == '"' || value.back() == ' ')) value.pop_back();
    return value;
  }
  return "";
}

std::string virtualization() {
  std::string out;
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    if (line.compare(0, 5, "flags") != 0) continue;
    if (line.find(" hypervisor") != std::string::npos) out = "virtual machine";
    break;
  }
  const std::string groups = first_line("/proc/1/cgroup");
  const bool container = fs::exists("/.dockerenv") || fs::exists("/run/.containerenv") ||
                         ::getenv("KUBERNETES_SERVICE_HOST") != nullptr ||
                         ::getenv("NVIDIA_VISIBLE_DEVICES") != nullptr ||
                         first_line("/proc/self/mounts").compare(0, 10, "overlay / ") == 0 ||
                         groups.find("docker") != std::string::npos ||
                         groups.find("kubepods") != std::string::npos;
  if (container) out += out.empty() ? "container" : ", container";
  return out;
}

std::string iommu_mode() {
  std::error_code error;
  bool any = false, translated = false;
  for (const auto& group : fs::directory_iterator("/sys/kernel/iommu_groups", error)) {
    any = true;
    const std::string type = first_line(group.path() / "type");
    bool nvidia = false;
    for (const auto& device : fs::directory_iterator(group.path() / "devices", error)) {
      nvidia = nvidia || first_line(device.path() / "vendor") == "0x10de";
    }
    translated = translated || (nvidia && type.compare(0, 3, "DMA") == 0);
  }
  if (!any) return "off";
  return translated ? "translated" : "passthrough";
}

std::string link_text(const fs::path& device) {
  return fmt::format("{}: {} x{} of {} x{}", device.filename().string(),
                     first_line(device / "current_link_speed"),
                     first_line(device / "current_link_width"),
                     first_line(device / "max_link_speed"), first_line(device / "max_link_width"));
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The card, then every bridge above it.
std::vector<fs::path> devices_up_to_root(const std::string& bus) {
  std::vector<fs::path> out;
  std::error_code error;
  fs::path device = fs::canonical(fs::path("/sys/bus/pci/devices") / bus, error);
  while (!error && fs::exists(device / "vendor", error)) {
    out.push_back(device);
    device = device.parent_path();
  }
  return out;
}

// The configuration space of the bridges; without root the kernel shows only its first 64 bytes.
void read_acs(HostFacts& out) {
  std::set<std::string> redirecting;
  int told = 0, hidden = 0;
  for (const std::string& entry : nvidia_devices_on_bus()) {
    const std::vector<fs::path> chain = devices_up_to_root(entry.substr(0, entry.find(' ')));
    for (size_t i = 1; i < chain.size(); ++i) {
      const std::string config = text_of(chain[i] / "config");
      if (const Maybe<bool> redirects = acs_redirects(config); redirects.has_value()) {
        ++told;
        if (*redirects) redirecting.insert(chain[i].filename().string());
      } else {
        ++hidden;
      }
    }
  }
  out.acs_bridges.assign(redirecting.begin(), redirecting.end());
  out.acs = !redirecting.empty() ? "redirecting" : hidden > 0 || told == 0 ? "unknown" : "off";
}

// Reading /dev/kmsg gives one record a call; past the last one it would wait.
Maybe<std::vector<KernelLine>> read_kernel_log() {
  const int log = ::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (log < 0) return {};
  std::vector<KernelLine> out;
  char record[8192];
  for (;;) {
    const ssize_t n = ::read(log, record, sizeof(record));
    if (n < 0 && errno == EPIPE) continue;  // overwritten while we read: the next one is there
    if (n <= 0) {
      // EAGAIN is the end of the log; any other error means that it may not be read.
      const bool at_end = n == 0 || errno == EAGAIN;
      ::close(log);
      return at_end ? Maybe<std::vector<KernelLine>>(std::move(out)) : std::nullopt;
    }
    if (const auto line = parse_kernel_line(std::string_view(record, static_cast<size_t>(n)));
        line.has_value() && out.size() < kKernelLinesKept)
      out.push_back(*line);
  }
}

}  // namespace

HostFacts read_host_facts() {
  HostFacts out;
  utsname system{};
  if (::uname(&system) == 0) out.kernel = system.release;
  out.os = field_of("/etc/os-release", "PRETTY_NAME");
  out.cpu = field_of("/proc/cpuinfo", "model name");
  out.virtualization = virtualization();
  out.iommu = iommu_mode();
  out.root = ::geteuid() == 0;
  read_acs(out);
  out.kernel_log = read_kernel_log();
  return out;
}

std::vector<std::string> nvidia_devices_on_bus() {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    const std::string device_class = first_line(device.path() / "class");
    const bool display =
        device_class.compare(0, 6, "0x0300") == 0 || device_class.compare(0, 6, "0x0302") == 0;
    if (!display || first_line(device.path() / "vendor") != "0x10de") continue;
    out.push_back(device.path().filename().string() +
                  " 10de:" + first_line(device.path() / "device").substr(2));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> pcie_hops(const std::string& bus) {
  std::vector<std::string> out;
  for (const fs::path& device : devices_up_to_root(bus)) {
    if (!fs::exists(device / "current_link_speed")) break;
    out.push_back(link_text(device));
  }
  return out;
}

Maybe<AerCounts> read_aer(const std::string& bus) {
  Maybe<AerCounts> out;
  const auto add = [&](const fs::path& file, int64_t AerCounts::*counter) {
    const Maybe<int64_t> total = aer_total(text_of(file));
    if (!total.has_value()) return;
    if (!out.has_value()) out = AerCounts{};
    (*out).*counter += *total;
  };
  for (const fs::path& device : devices_up_to_root(bus)) {
    add(device / "aer_dev_correctable", &AerCounts::correctable);
    add(device / "aer_dev_nonfatal", &AerCounts::uncorrectable);
    add(device / "aer_dev_fatal", &AerCounts::uncorrectable);
  }
  return out;
}

}  // namespace lockstep::probe
