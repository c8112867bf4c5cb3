// What the operating system tells without a driver: /proc, /sys and the files of installed
// libraries.
#pragma once

#include <string>
#include <vector>

#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

HostFacts read_host_facts();
std::vector<std::string> nvidia_devices_on_bus();  // "0000:3b:00.0 10de:1db5"
std::vector<std::string> pcie_hops(
    const std::string& bus);  // the card, then every bridge up to the root
// The kernel's PCIe error counters, summed over the card and every bridge above it; empty where it
// keeps none.
Maybe<AerCounts> read_aer(const std::string& bus);

}  // namespace lockstep::probe
