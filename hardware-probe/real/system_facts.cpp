#include "hardware-probe/real/system_facts.h"

#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep::probe {
namespace {

namespace fs = std::filesystem;

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

// Fat binaries have no documented layout; these offsets hold for CUDA 9 to 13. A hint, not a proof.
constexpr uint32_t kFatMagic = 0xBA55ED50u;
constexpr size_t kFatHeaderBytes = 16, kFatEntryBytes = 64;

template <typename T>
T read_at(std::span<const std::byte> bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::set<int> fat_binary_archs(std::span<const std::byte> bytes) {
  std::set<int> archs;
  for (size_t at = 0; at + kFatHeaderBytes + kFatEntryBytes <= bytes.size(); at += 8) {
    if (read_at<uint32_t>(bytes, at) != kFatMagic) continue;
    const size_t end =
        at + kFatHeaderBytes + std::min<size_t>(read_at<uint64_t>(bytes, at + 8), bytes.size());
    for (size_t entry = at + kFatHeaderBytes;
         entry + kFatEntryBytes <= std::min(end, bytes.size());) {
      const auto kind = read_at<uint16_t>(bytes, entry);
      const auto header = read_at<uint32_t>(bytes, entry + 4);
      const auto size = read_at<uint64_t>(bytes, entry + 8);
      const auto arch = read_at<uint32_t>(bytes, entry + 28);
      if ((kind == 1 || kind == 2) && arch >= 30 && arch < 200)
        archs.insert(static_cast<int>(arch));
      if (header == 0 || header + size == 0 || size > bytes.size()) break;
      entry += header + size;
    }
  }
  return archs;
}

std::string cuda_of(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find("+cuda");
  if (at == std::string_view::npos) return "";
  size_t end = at + 5;
  while (end < text.size() && end < at + 12 &&
         (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.'))
    ++end;
  return std::string(text.substr(at + 5, end - at - 5));
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
  out.acs = "unknown";
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
  std::error_code error;
  fs::path device = fs::canonical(fs::path("/sys/bus/pci/devices") / bus, error);
  while (!error && !device.empty() && fs::exists(device / "current_link_speed", error)) {
    out.push_back(link_text(device));
    device = device.parent_path();
  }
  return out;
}

std::vector<NcclLibrary> find_nccl() {
  void* handle = ::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return {};
  NcclLibrary library;
  void* version_symbol = ::dlsym(handle, "ncclGetVersion");
  int version = 0;
  if (version_symbol != nullptr) reinterpret_cast<int (*)(int*)>(version_symbol)(&version);
  library.version = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  Dl_info where{};
  if (version_symbol != nullptr && ::dladdr(version_symbol, &where) != 0)
    library.path = where.dli_fname;
  try {
    const MappedFile file(library.path);
    const std::set<int> archs = fat_binary_archs(file.bytes());
    library.archs.assign(archs.begin(), archs.end());
    library.cuda = cuda_of(file.bytes());
  } catch (const Error&) {
    // The version alone is still worth telling.
  }
  return {library};
}

}  // namespace lockstep::probe
