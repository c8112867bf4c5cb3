// What NVML tells of a card. NVML is asked by PCI bus id, never by index: its order is not CUDA's.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hardware-probe/observe/observations.h"
#include "hardware-probe/real/dynamic_library.h"

namespace lockstep::probe {

class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool present() const { return initialised_; }
  const std::string& error() const { return error_; }
  std::vector<std::string> bus_ids();
  std::string driver_version();

  void describe(const std::string& bus, GpuIdentity& out);
  GpuConfig config(const std::string& bus);
  GpuHistory history(const std::string& bus);
  Sample sample(const std::string& bus);  // throws DeviceLost
  PcieLink pcie_link(const std::string& bus);
  Maybe<int64_t> pcie_replays(const std::string& bus);
  std::pair<Maybe<double>, Maybe<double>> violation_s(const std::string& bus);
  std::vector<NvlinkState> nvlinks(const std::string& bus);
  void describe_pair(const std::string& from, const std::string& to, PairObservations& out);
  // Xids since the last call, as {bus id, xid}.
  std::vector<std::pair<std::string, int>> xids();

 private:
  using Handle = void*;
  Handle handle(const std::string& bus);
  void watch_xids();

  DynamicLibrary library_;
  bool initialised_ = false;
  std::string error_;
  void* events_ = nullptr;
};

std::string normal_bus_id(std::string bus);  // "0000:3b:00.0", lower case

}  // namespace lockstep::probe
