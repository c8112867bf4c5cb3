// The physics of a synthetic machine: what its chips, memories, links and fans truly do. The
// backend on top turns this into driver answers; nothing above the backend ever sees these fields.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "hardware-probe/cards/card_database.h"
#include "hardware-probe/observe/observations.h"

namespace lockstep::probe::sim {

struct BrokenWord {
  double place = 0.37;  // share of the memory
  uint64_t stuck_high = 0, stuck_low = 0;
  double from_temperature_c = 0;  // breaks only when at least this hot
  double fades_after_s = 0;       // loses its charge only after so long at rest
};

enum class SmTrouble { none, always, hot, after_burst };

struct Cooling {
  double target_c = 62;  // plateau under full power
  double time_constant_s = 40;
  double from_neighbour_c = 0;  // added while another card is loaded
  double memory_offset_c = 2;
  double idle_c = 36;
};

struct Chip {
  Card card;  // what it truly is
  GpuIdentity identity;
  GpuConfig config;
  GpuHistory history;

  Cooling cooling;
  bool power_brake = false;
  double memory_speed = 1.0;
  double slow_chunk_from = 0, slow_chunk_to = 0, slow_chunk_speed = 1.0;  // shares of the memory
  std::vector<BrokenWord> broken_words;
  double real_memory_share = 1.0;  // below 1: the rest is an alias of the beginning
  double free_memory_share = 0.985;
  int64_t ecc_corrected_per_pass = 0;
  int bad_sm = -1, slow_sm = -1;
  SmTrouble bad_sm_when = SmTrouble::none;
  int hidden_sms = 0;  // SMs that never receive work
  double fp32_speed = 1.0, matrix_speed = 1.0, dp4a_speed = 1.0;
  int pcie_gen = 3, pcie_width = 16;
  double pcie_speed = 1.0;
  int64_t pcie_wrong_words = 0, pcie_replays_per_transfer = 0;
  int64_t aer_correctable_per_transfer = 0, aer_uncorrectable_per_transfer = 0;
  int dead_nvlinks = 0;
  int64_t nvlink_crc_per_move = 0, nvlink_recoveries_per_move = 0;
  int lost_after_fills = std::numeric_limits<int>::max();
  bool memory_test_hangs = false;
  int xid_during_load = 0;
  int logged_xid_during_load = 0;  // reaches the kernel log alone
};

struct Link {
  bool denied = false;
  bool mirror = false, drop_all = false, drop_stores = false;
  bool ping_pong_hangs = false, wrong_sums = false;
  double latency_us = 0;  // 0: what the link gives by nature
  double copy_4k_us = 0;  // 0: by nature
  double speed = 1.0;
};

struct Machine {
  std::vector<Chip> chips;
  Link link;  // between the last card and every other
  HostFacts host;
  StackFacts stack;
  bool nvml = true, cuda = true;
  bool last_card_hidden = false;  // on the bus, unknown to the driver
};

// A healthy machine with these cards.
Machine build_machine(const std::vector<const Card*>& cards);

}  // namespace lockstep::probe::sim
