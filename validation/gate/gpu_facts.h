// What the NVIDIA driver says of this machine, read from /proc: no library, no tool.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct GpuFacts {
  std::string model;
  std::string uuid;
};

inline constexpr const char* kNvidiaProc = "/proc/driver/nvidia";

// In order of PCI address; empty without a driver.
std::vector<GpuFacts> installed_gpus(const std::filesystem::path& proc = kNvidiaProc);

// The driver's version line; empty without a driver.
std::string driver_version(const std::filesystem::path& proc = kNvidiaProc);

}  // namespace lockstep
