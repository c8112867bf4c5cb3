#include "hardware-probe/sim/faults.h"

#include <algorithm>

#include "engine/base/error.h"

namespace lockstep::probe::sim {
namespace {

Chip& sick(Machine& machine) {
  return machine.chips.back();
}
const Chip& sick(const Machine& machine) {
  return machine.chips.back();
}

std::string nothing(const Machine&) {
  return "";
}
std::string needs_pair(const Machine& m) {
  return m.chips.size() < 2 ? "it needs two cards" : "";
}
std::string needs_peers(const Machine& m) {
  if (m.chips.size() < 2) return "it needs two cards";
  for (const Chip& chip : m.chips) {
    if (!chip.card.p2p) return chip.card.name + " has no peer access";
  }
  return "";
}
std::string needs_nvlink(const Machine& m) {
  return sick(m).card.nvlinks == 0 ? sick(m).card.name + " has no NVLink" : "";
}
std::string needs_nvlink_pair(const Machine& m) {
  const std::string peers = needs_peers(m);
  return peers.empty() ? needs_nvlink(m) : peers;
}
std::string needs_ecc(const Machine& m) {
  return sick(m).card.ecc ? "" : sick(m).card.name + " has no ECC";
}
std::string needs_history(const Machine& m) {
  return sick(m).card.history == "none" ? sick(m).card.name + " keeps no history of its memory"
                                        : "";
}
std::string needs_pages(const Machine& m) {
  return sick(m).card.history != "pages" ? sick(m).card.name + " retires no pages" : "";
}
std::string needs_rows(const Machine& m) {
  return sick(m).card.history != "rows" ? sick(m).card.name + " remaps no rows" : "";
}
std::string needs_matrix_units(const Machine& m) {
  return sick(m).card.hmma_fma_per_sm < 100 ? sick(m).card.name + " has no full matrix units" : "";
}
std::string needs_dp4a(const Machine& m) {
  return sick(m).card.dp4a_per_sm == 0 ? "the rate of " + sick(m).card.name + " is not known" : "";
}
std::string needs_wide_link(const Machine& m) {
  return sick(m).card.pcie_width <= 1 ? sick(m).card.name + " has one lane by design" : "";
}
std::string needs_memory_sensor(const Machine& m) {
  return sick(m).card.memory_max_c == 0 ? sick(m).card.name + " has no memory temperature limit"
                                        : "";
}
std::string needs_legacy_driver(const Machine& m) {
  return sick(m).card.last_driver == 0 ? "drivers still support " + sick(m).card.name : "";
}

void retire(Machine& m, int pages, const char* cause, int64_t spacing_s) {
  GpuHistory& history = sick(m).history;
  if (sick(m).card.history == "rows") {
    history.remapped_uncorrected = pages;
    history.banks_without_spare = pages > 5 ? 1 : 0;
    return;
  }
  std::vector<RetiredPage> list;
  for (int i = 0; i < pages; ++i) list.push_back({cause, 1700000000 + i * spacing_s});
  history.retired = list;
  history.aggregate_corrected = 2 * pages;
}

constexpr int64_t kYear_s = 365 * 86400;

const std::vector<Fault> kFaults = {
    // Compute
    {"bad-sm", "C15", Mode::quick, "one SM computes wrong results", nothing,
     [](Machine& m) { sick(m).bad_sm = 17, sick(m).bad_sm_when = SmTrouble::always; }},
    {"hot-sm", "C15", Mode::standard, "one SM computes wrong results when hot", nothing,
     [](Machine& m) { sick(m).bad_sm = 5, sick(m).bad_sm_when = SmTrouble::hot; }},
    {"burst-sm", "C15", Mode::standard, "one SM computes wrong results right after a load burst",
     nothing,
     [](Machine& m) { sick(m).bad_sm = 23, sick(m).bad_sm_when = SmTrouble::after_burst; }},
    {"slow-sm", "C15", Mode::quick, "one SM runs 12 % slower", nothing,
     [](Machine& m) { sick(m).slow_sm = 9; }},
    {"unreached-sm", "C15", Mode::quick, "two SMs never receive work", nothing,
     [](Machine& m) { sick(m).hidden_sms = 2; }},
    {"tensor-cut", "C16", Mode::quick, "matrix units run at a twentieth, as on mining cards",
     needs_matrix_units, [](Machine& m) { sick(m).matrix_speed = 0.05; }},
    {"dp4a-cut", "C16", Mode::quick, "8-bit integer products at a quarter, as on mining cards",
     needs_dp4a, [](Machine& m) { sick(m).dp4a_speed = 0.25; }},
    {"fp32-slow", "C16", Mode::quick, "FP32 runs at 70 %", nothing,
     [](Machine& m) { sick(m).fp32_speed = 0.7; }},
    // Memory
    {"stuck-bit", "C12", Mode::quick, "one bit of memory is stuck at one", nothing,
     [](Machine& m) {
       sick(m).broken_words.push_back({0.37, uint64_t{1} << 21, 0, 0, 0});
     }},
    {"stuck-low", "C12", Mode::quick, "one bit of memory is stuck at zero", nothing,
     [](Machine& m) {
       sick(m).broken_words.push_back({0.81, 0, uint64_t{1} << 50, 0, 0});
     }},
    {"hot-bit", "C13", Mode::standard, "one bit of memory fails when hot", nothing,
     [](Machine& m) {
       sick(m).broken_words.push_back({0.52, uint64_t{1} << 7, 0, 48, 0});
     }},
    {"fading-bit", "C14", Mode::deep, "one bit of memory loses its charge", nothing,
     [](Machine& m) {
       sick(m).broken_words.push_back({0.66, 0, uint64_t{1} << 33, 0, 60});
     }},
    {"fake-memory", "C12", Mode::quick, "half of the memory is an alias of the other half", nothing,
     [](Machine& m) { sick(m).real_memory_share = 0.5; }},
    {"hbm-slow-chunk", "C11", Mode::quick, "one region of the memory is 15 % slower", nothing,
     [](Machine& m) {
       sick(m).slow_chunk_from = 0.25, sick(m).slow_chunk_to = 0.28,
       sick(m).slow_chunk_speed = 0.85;
     }},
    {"slow-memory", "C10", Mode::quick, "the whole memory is a quarter slower", nothing,
     [](Machine& m) { sick(m).memory_speed = 0.75; }},
    {"memory-occupied", "C12", Mode::quick, "only 70 % of the memory is free", nothing,
     [](Machine& m) { sick(m).free_memory_share = 0.7; }},
    {"memory-hang", "C12", Mode::quick, "the memory test never ends", nothing,
     [](Machine& m) { sick(m).memory_test_hangs = true; }},
    {"ecc-counting", "C12", Mode::quick, "ECC corrects an error in every pass", needs_ecc,
     [](Machine& m) { sick(m).ecc_corrected_per_pass = 1; }},
    // History
    {"retired-pages", "C05", Mode::quick, "twelve pages retired", needs_history,
     [](Machine& m) { retire(m, 12, "sbe", kYear_s / 4); }},
    {"retired-few", "C05", Mode::quick, "two pages retired long ago", needs_history,
     [](Machine& m) { retire(m, 2, "sbe", kYear_s); }},
    {"retired-burst", "C05", Mode::quick, "four pages retired within a week", needs_pages,
     [](Machine& m) { retire(m, 4, "sbe", 86400); }},
    {"dbe-page", "C05", Mode::quick, "a page retired after a double-bit error", needs_pages,
     [](Machine& m) { retire(m, 1, "dbe", 0); }},
    {"retired-pending", "C05", Mode::quick, "a page retirement waits for a reboot", needs_pages,
     [](Machine& m) { sick(m).history.retired_pending = true; }},
    {"ecc-wiped", "C05", Mode::quick, "pages are retired, the error counters were set to zero",
     needs_pages,
     [](Machine& m) {
       retire(m, 2, "sbe", kYear_s);
       sick(m).history.aggregate_corrected = 0;
     }},
    {"xid-before", "C05", Mode::quick, "Xid 48 in the kernel log from before the run", nothing,
     [](Machine& m) {
       const std::string& bus = sick(m).identity.bus_id;
       m.host.kernel_log->push_back(
           {412.5, bus, 48, "NVRM: Xid (PCI:" + bus.substr(0, bus.find('.')) + "): 48, DBE"});
     }},
    {"remap-failure", "C05", Mode::quick, "row remapping has failed", needs_rows,
     [](Machine& m) { sick(m).history.remap_failed = true; }},
    {"uncorrectable", "C05", Mode::quick, "an uncorrectable error since the driver was loaded",
     needs_ecc, [](Machine& m) { sick(m).history.volatile_uncorrected = 1; }},
    // Identity and settings
    {"wrong-clock", "C02", Mode::quick, "another memory clock than the card should have", nothing,
     [](Machine& m) {
       Chip& c = sick(m);
       c.card.memory_mhz = c.card.memory_mhz * 4 / 5;
       c.identity.max_memory_mhz = c.card.memory_mhz;
       c.card.measured_read_gbps *= 0.8;
       c.card.measured_copy_gbps *= 0.8;
     }},
    {"remarked", "C02", Mode::quick, "a smaller chip under a better name", nothing,
     [](Machine& m) {
       Chip& c = sick(m);
       c.card.sm = c.card.sm * 3 / 4;
       c.identity.sm_count = c.card.sm;
       c.identity.l2_kib = c.card.l2_kib / 2;
     }},
    {"foreign-vbios", "C02", Mode::quick, "a vBIOS of another chip", nothing,
     [](Machine& m) { sick(m).identity.vbios = "84.04.31.00.01"; }},
    {"broken-inforom", "C02", Mode::quick, "a corrupt InfoROM", nothing,
     [](Machine& m) { sick(m).identity.inforom_valid = false; }},
    {"ecc-off", "C04", Mode::quick, "ECC is switched off", needs_ecc,
     [](Machine& m) { sick(m).config.ecc_current = sick(m).config.ecc_pending = false; }},
    {"power-limited", "C04", Mode::quick, "the power limit is half of the default", nothing,
     [](Machine& m) { sick(m).config.power_limit_w = sick(m).card.power_w / 2; }},
    {"other-process", "C04", Mode::quick, "another process uses the card", nothing,
     [](Machine& m) { sick(m).config.other_processes = 1; }},
    {"small-bar1", "C04", Mode::quick, "BAR1 is smaller than the card can",
     [](const Machine& m) {
       return std::string(
           sick(m).card.bar1_mib <= 256 ? sick(m).card.name + " has a small BAR1 by design" : "");
     },
     [](Machine& m) { sick(m).identity.bar1_mib = 128; }},
    // Heat and power
    {"throttle", "C18", Mode::quick, "the cooler has failed: slowed by heat within seconds",
     nothing,
     [](Machine& m) { sick(m).cooling.target_c = 150, sick(m).cooling.time_constant_s = 5; }},
    {"throttle-second", "C18", Mode::standard,
     "slowed by heat only while the other card is loaded too", needs_pair,
     [](Machine& m) { sick(m).cooling.target_c = 55, sick(m).cooling.from_neighbour_c = 41; }},
    {"power-brake", "C18", Mode::quick, "the supply pulls the power brake under load", nothing,
     [](Machine& m) { sick(m).power_brake = true; }},
    {"hot-memory", "C17", Mode::standard, "memory too hot while the chip is cool",
     needs_memory_sensor, [](Machine& m) { sick(m).cooling.memory_offset_c = 40; }},
    {"hot-idle", "C06", Mode::standard, "68 degrees at rest", nothing,
     [](Machine& m) { sick(m).cooling.idle_c = 68; }},
    // PCIe
    {"pcie-x1", "C07", Mode::quick, "one PCIe lane instead of sixteen", needs_wide_link,
     [](Machine& m) { sick(m).pcie_width = 1; }},
    {"pcie-narrow", "C07", Mode::quick, "a quarter of the PCIe lanes", needs_wide_link,
     [](Machine& m) { sick(m).pcie_width = std::max(2, sick(m).card.pcie_width / 4); }},
    {"pcie-slow", "C08", Mode::quick, "PCIe carries a third of what its lanes can", nothing,
     [](Machine& m) { sick(m).pcie_speed = 0.35; }},
    {"pcie-corrupt", "C08", Mode::quick, "words arrive wrong over PCIe", nothing,
     [](Machine& m) { sick(m).pcie_wrong_words = 3; }},
    {"pcie-replays", "C09", Mode::quick, "PCIe packets are sent again and again", nothing,
     [](Machine& m) { sick(m).pcie_replays_per_transfer = 40; }},
    {"aer-correctable", "C09", Mode::quick, "the root port corrects PCIe errors all the time",
     nothing, [](Machine& m) { sick(m).aer_correctable_per_transfer = 40; }},
    {"aer-uncorrectable", "C09", Mode::quick, "a PCIe error that the bus could not correct",
     nothing, [](Machine& m) { sick(m).aer_uncorrectable_per_transfer = 1; }},
    // NVLink and P2P
    {"nvlink-errors", "C19", Mode::quick, "NVLink CRC errors under load", needs_nvlink_pair,
     [](Machine& m) { sick(m).nvlink_crc_per_move = 3; }},
    {"nvlink-recovery", "C19", Mode::quick, "an NVLink retrains under load", needs_nvlink_pair,
     [](Machine& m) { sick(m).nvlink_recoveries_per_move = 1; }},
    {"nvlink-missing", "C19", Mode::quick, "one NVLink is down", needs_nvlink,
     [](Machine& m) { sick(m).dead_nvlinks = 1; }},
    {"p2p-mirror", "C21", Mode::quick,
     "peer writes land in a private copy that only the writer sees", needs_peers,
     [](Machine& m) { m.link.mirror = true; }},
    {"p2p-drop", "C21", Mode::quick, "peer writes are dropped", needs_peers,
     [](Machine& m) { m.link.drop_all = true; }},
    {"p2p-store-drop", "C21", Mode::quick, "only stores by kernels are dropped, copies arrive",
     needs_peers, [](Machine& m) { m.link.drop_stores = true; }},
    {"p2p-hang", "C21", Mode::quick, "two kernels that wait for each other never meet", needs_peers,
     [](Machine& m) { m.link.ping_pong_hangs = true; }},
    {"p2p-slow", "C22", Mode::quick, "4 KiB take 49 ms to the other card", needs_peers,
     [](Machine& m) { m.link.latency_us = 16000, m.link.copy_4k_us = 49000; }},
    {"p2p-staged", "C22", Mode::quick, "peer traffic takes a detour through the host", needs_peers,
     [](Machine& m) { m.link.latency_us = 14; }},
    {"p2p-narrow", "C22", Mode::quick, "peer copies at a third of the link", needs_peers,
     [](Machine& m) { m.link.speed = 0.33; }},
    {"p2p-denied", "C20", Mode::quick, "the driver refuses peer access over NVLink",
     needs_nvlink_pair, [](Machine& m) { m.link.denied = true; }},
    {"sums-wrong", "C23", Mode::quick, "all-reduce through peers gives wrong sums", needs_peers,
     [](Machine& m) { m.link.wrong_sums = true; }},
    // Host and software
    {"iommu-translated", "C01", Mode::quick, "the IOMMU translates", nothing,
     [](Machine& m) { m.host.iommu = "translated"; }},
    {"acs-redirecting", "C01", Mode::quick, "ACS sends peer traffic through the root", needs_pair,
     [](Machine& m) {
       m.host.acs = "redirecting";
       m.host.acs_bridges = {"0000:3a:00.0"};
     }},
    {"invisible", "C03", Mode::quick, "on the bus, but the driver does not list it", nothing,
     [](Machine& m) { m.last_card_hidden = true; }},
    {"driver-too-new", "C03", Mode::quick, "a driver that dropped this card", needs_legacy_driver,
     [](Machine& m) {
       m.last_card_hidden = true;
       m.stack.driver_version = "595.45.04";
     }},
    {"driver-old", "C24", Mode::quick, "driver branch 418", nothing,
     [](Machine& m) { m.stack.driver_version = "418.226.00"; }},
    {"nccl-no-arch", "C24", Mode::quick, "NCCL without kernels for this card", nothing,
     [](Machine& m) {
       m.stack.nccl = {
           {"/usr/lib/x86_64-linux-gnu/libnccl.so.2", "2.31.1", "13.0", {100, 120}, {120}, true}};
     }},
    {"nccl-shadowed", "C24", Mode::quick,
     "the system's NCCL lacks this card, the one of a Python package has it", nothing,
     [](Machine& m) {
       KernelLibrary usable = m.stack.nccl.front();
       usable.path = "/opt/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2";
       usable.loader = false;
       m.stack.nccl = {
           {"/usr/lib/x86_64-linux-gnu/libnccl.so.2", "2.31.1", "13.0", {100, 120}, {120}, true},
           usable};
     }},
    {"torch-no-arch", "C24", Mode::quick, "PyTorch without kernels for this card", nothing,
     [](Machine& m) {
       m.stack.torch = {{"/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so",
                         "2.11.0+cu130",
                         "13.0",
                         {100, 120},
                         {120},
                         false}};
     }},
    {"nvml-absent", "C03", Mode::quick, "no NVML library", nothing,
     [](Machine& m) { m.nvml = false; }},
    {"driver-absent", "C03", Mode::quick, "no CUDA driver library", nothing,
     [](Machine& m) { m.cuda = false; }},
    // Events
    {"lost-mid-run", "C25", Mode::quick, "the card falls off the bus during the memory test",
     nothing, [](Machine& m) { sick(m).lost_after_fills = 4; }},
    {"xid", "C25", Mode::quick, "Xid 48 under load", nothing,
     [](Machine& m) { sick(m).xid_during_load = 48; }},
    {"xid-logged", "C25", Mode::quick, "Xid 79 under load that only the kernel log has", nothing,
     [](Machine& m) { sick(m).logged_xid_during_load = 79; }},
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::vector<const Card*> cards_of(const std::string& text, const CardDatabase& cards) {
  if (const size_t star = text.find('*'); star != std::string::npos) {
    const std::string count = text.substr(star + 1);
    if (count != "1" && count != "2") {
      fail_with(ExitCode::usage, "--sim {}: after * comes 1 or 2", text);
    }
    return std::vector<const Card*>(count == "1" ? 1 : 2, &cards.get(text.substr(0, star)));
  }
  const std::vector<std::string> names = split(text, '+');
  if (names.size() > 2) fail_with(ExitCode::usage, "--sim {}: at most two cards", text);
  return {&cards.get(names.front()), &cards.get(names.back())};
}

const Fault& fault_named(const std::string& name) {
  const auto found = std::find_if(kFaults.begin(), kFaults.end(),
                                  [&](const Fault& fault) { return fault.name == name; });
  if (found == kFaults.end()) {
    fail_with(ExitCode::usage, "unknown fault \"{}\"; --list-faults names all", name);
  }
  return *found;
}

}  // namespace

const std::vector<Fault>& faults() {
  return kFaults;
}

Machine machine_from_spec(const std::string& spec, const CardDatabase& cards) {
  const std::vector<std::string> parts = split(spec, ',');
  Machine machine = build_machine(cards_of(parts.front(), cards));
  for (size_t i = 1; i < parts.size(); ++i) {
    const Fault& fault = fault_named(parts[i]);
    const std::string obstacle = fault.obstacle(machine);
    if (!obstacle.empty())
      fail_with(ExitCode::usage, "fault {} does not apply: {}", fault.name, obstacle);
    fault.apply(machine);
  }
  return machine;
}

}  // namespace lockstep::probe::sim
