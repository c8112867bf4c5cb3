#include "hardware-probe/sim/machine.h"

#include <algorithm>

#include "engine/base/error.h"
#include "hardware-probe/kernels/workload.h"

namespace lockstep::probe::sim {
namespace {

GpuIdentity identity_of(const Card& card, size_t place) {
  GpuIdentity id;
  id.bus_id = fmt::format("0000:{:02x}:00.0", 0x3b + 0x20 * place);
  id.pci_id = card.pci_ids.front();
  id.subsystem = "10de:0000";
  id.name = card.reported;
  // Cards of another name are other cards: their serial numbers must differ too.
  uint64_t identity = place;
  for (const char c : card.name) identity = mix64(identity ^ static_cast<uint8_t>(c));
  id.serial = fmt::format("SIM{:09}", identity % 1000000000);
  id.uuid = fmt::format("GPU-00000000-0000-4000-8000-{:012x}", identity >> 16);
  id.vbios = card.vbios_prefix + ".4F.00.09";
  id.inforom = card.board.empty() ? "" : card.board + ".0201.00.03";
  id.inforom_valid = true;
  id.compute_capability = card.compute_capability;
  id.sm_count = card.sm;
  id.bus_bits = card.bus_bits;
  id.l2_kib = card.l2_kib;
  id.max_sm_mhz = card.max_sm_mhz;
  id.max_memory_mhz = card.memory_mhz;
  id.fb_mib = card.fb_mib;
  id.bar1_mib = card.bar1_mib;
  id.max_pcie_gen = card.pcie_gen;
  id.max_pcie_width = card.pcie_width;
  id.slowdown_c = card.slowdown_c;
  id.shutdown_c = card.shutdown_c;
  id.max_operating_c = card.max_operating_c;
  if (card.memory_max_c > 0) id.memory_max_c = card.memory_max_c;
  return id;
}

GpuConfig config_of(const Card& card) {
  GpuConfig config;
  if (card.ecc) config.ecc_current = config.ecc_pending = true;
  config.persistence = true;
  config.compute_mode = "default";
  config.power_limit_w = config.power_default_w = card.power_w;
  config.other_processes = 0;
  return config;
}

GpuHistory history_of(const Card& card) {
  GpuHistory history;
  if (card.ecc) {
    history.volatile_corrected = history.volatile_uncorrected = 0;
    history.aggregate_corrected = history.aggregate_uncorrected = 0;
  }
  if (card.history == "pages") {
    history.retired = std::vector<RetiredPage>{};
    history.retired_pending = false;
  }
  if (card.history == "rows") {
    history.remapped_corrected = history.remapped_uncorrected = history.banks_without_spare = 0;
    history.remap_pending = history.remap_failed = history.sram_exceeded = false;
  }
  return history;
}

}  // namespace

Machine build_machine(const std::vector<const Card*>& cards) {
  Machine machine;
  machine.host.os = "Debian GNU/Linux 12 (simulated)";
  machine.host.kernel = "6.1.0-sim";
  machine.host.cpu = "simulated";
  machine.host.iommu = machine.host.acs = "off";
  machine.host.root = true;
  machine.host.kernel_log = std::vector<KernelLine>{};
  for (size_t i = 0; i < cards.size(); ++i) {
    Chip chip;
    chip.card = *cards[i];
    chip.identity = identity_of(*cards[i], i);
    chip.config = config_of(*cards[i]);
    chip.history = history_of(*cards[i]);
    // A healthy cooler stays well below the limit of its own card.
    chip.cooling.target_c = std::min(66, cards[i]->max_operating_c - 13);
    chip.pcie_gen = cards[i]->pcie_gen;
    chip.pcie_width = cards[i]->pcie_width;
    machine.chips.push_back(std::move(chip));
  }
  machine.stack.driver_version = "580.95.05";
  machine.stack.cuda_version = 13000;
  // As NCCL's makefiles build it with CUDA 12: later minor versions run on the code of the first.
  machine.stack.nccl = {{"/usr/lib/x86_64-linux-gnu/libnccl.so.2",
                         "2.21.5",
                         "12.4",
                         {50, 60, 61, 70, 80, 90},
                         {90},
                         true}};
  machine.stack.kernel_archs = {60, 61, 70, 75, 80, 86, 89, 90};
  machine.stack.ptx = true;
  return machine;
}

}  // namespace lockstep::probe::sim
