#pragma once

namespace lockstep::probe {

// What the lanes of a PCI Express link carry in one direction, GB/s; 0 for an unknown generation.
double pcie_gbps(int gen, int width);

}  // namespace lockstep::probe
