// Inline SVG for the page.
#pragma once

#include <string>
#include <vector>

#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

std::string html_escape(const std::string& text);
// Temperature, clock and power of all cards together and each alone; "" without a soak.
std::string soak_plots(const Observations& seen);
std::string memory_map_plot(const std::string& label, const std::vector<ChunkRate>& map,
                            const GpuObservations& gpu);

}  // namespace lockstep::probe
