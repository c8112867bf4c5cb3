// What a check may look at: observations, the card database and the buyer's claim. Nothing else.
#pragma once

#include <string>
#include <vector>

#include "engine/base/median.h"
#include "hardware-probe/cards/card_database.h"
#include "hardware-probe/checks/finding.h"
#include "hardware-probe/checks/thresholds.h"
#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

class Context {
 public:
  Context(const Observations& seen, const CardDatabase& cards, std::string claim);

  const Observations& seen;
  const CardDatabase& cards;
  const std::string claim;  // a card's name or ""

  const Card* row(int gpu) const {
    return rows_[static_cast<size_t>(gpu)];
  }  // null: not in the database
  const GpuObservations& gpu(int index) const { return seen.gpus[static_cast<size_t>(index)]; }
  const Step* step(const std::string& check, const std::string& target) const;
  // "gpu1 (V100-SXM2-32GB)"
  std::string label(int gpu) const;

 private:
  std::vector<const Card*> rows_;
};

// Collects the findings of one check on one target.
class Report {
 public:
  Report(std::string check, std::string name, std::string target)
      : check_(std::move(check)), name_(std::move(name)), target_(std::move(target)) {}

  Finding& add(Status status, Text reason, Text remedy = {});
  Finding& add(Status status, const Threshold& threshold, double value, Text reason,
               Text remedy = {});
  // The facts behind the check: a pass when nothing but such facts was reported, else information.
  void conclude(Text facts);
  bool empty() const { return findings_.empty(); }
  bool has(Status status) const;
  std::vector<Finding> take() { return std::move(findings_); }

 private:
  std::string check_, name_, target_;
  std::vector<Finding> findings_;
};

bool is_hardware_xid(int xid);  // speaks of the card, not of a program on it

// The checks, one family a file. `index` is a GPU, a place in `pairs`, or 0 for the host.
using CheckFunction = void (*)(const Context& context, int index, Report& report);
void check_environment(const Context&, int, Report&);
void check_visibility(const Context&, int, Report&);
void check_stack(const Context&, int, Report&);
void check_identity(const Context&, int, Report&);
void check_config(const Context&, int, Report&);
void check_history(const Context&, int, Report&);
void check_idle(const Context&, int, Report&);
void check_soak_solo(const Context&, int, Report&);
void check_soak_all(const Context&, int, Report&);
void check_pcie_link(const Context&, int, Report&);
void check_pcie_bandwidth(const Context&, int, Report&);
void check_pcie_errors(const Context&, int, Report&);
void check_memory_bandwidth(const Context&, int, Report&);
void check_memory_map(const Context&, int, Report&);
void check_memory_cold(const Context&, int, Report&);
void check_memory_hot(const Context&, int, Report&);
void check_bit_fade(const Context&, int, Report&);
void check_sm_proof(const Context&, int, Report&);
void check_rates(const Context&, int, Report&);
void check_nvlink(const Context&, int, Report&);
void check_p2p_static(const Context&, int, Report&);
void check_p2p_correct(const Context&, int, Report&);
void check_p2p_speed(const Context&, int, Report&);
void check_collective(const Context&, int, Report&);
void check_events(const Context&, int, Report&);

}  // namespace lockstep::probe
