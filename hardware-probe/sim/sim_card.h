// One synthetic card in motion: heat, clocks and what limits them.
#pragma once

#include "hardware-probe/backend/backend.h"
#include "hardware-probe/sim/machine.h"
#include "hardware-probe/sim/sim_memory.h"

namespace lockstep::probe::sim {

class SimCard {
 public:
  explicit SimCard(Chip chip);

  void set_load(Load load) { load_ = load; }
  bool loaded() const { return load_ != Load::none; }
  void advance(double seconds, bool neighbour_loaded);

  Sample sample() const;
  double sm_mhz() const;
  double temperature_c() const { return temperature_c_; }
  double theory_gbps() const { return chip.card.theory_gbps() * chip.memory_speed; }
  double read_gbps(double from_share, double to_share) const;
  double copy_gbps() const;
  std::vector<SmRun> run_sms(uint64_t golden, double now_s);
  double noise();  // a factor within 0.2 % of one, repeatable

  Chip chip;
  SimMemory memory;
  int fills = 0;
  bool lost = false, loss_reported = false;
  AerCounts aer;
  int64_t pcie_replays = 0, nvlink_crc = 0, nvlink_recoveries = 0, ecc_corrected = 0;
  double heat_s = 0, power_s = 0;
  double load_ended_s = -1e9;

 private:
  int heat_limit_c() const;
  bool too_hot() const;
  double full_clock_mhz() const;

  Load load_ = Load::none;
  double temperature_c_;
  bool neighbour_ = false;
  uint64_t draws_ = 0;
};

}  // namespace lockstep::probe::sim
