// The few numbers of a machine that decide how fast language models run on it.
#pragma once

#include <string>
#include <vector>

#include "hardware-probe/cards/card_database.h"
#include "hardware-probe/checks/finding.h"
#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

struct CardSummary {
  std::string uuid, row;
  double memory_mhz = 0, read_gbps = 0, copy_gbps = 0, theory_gbps = 0;
  double sm = 0, sm_mhz = 0, fp32_tflops = 0, hmma_tflops = 0;
  double solo_mhz = 0, together_mhz = 0, together_c = 0, solo_c = 0;  // plateau; 0 = not measured
};

struct MachineSummary {
  std::vector<CardSummary> cards;
  Mode mode = Mode::quick;
  double peer_gbps = 0, peer_latency_us = 0;  // slowest pair; 0 = not measured
  bool peers_denied = false;                  // the driver grants peer access to no pair
  int nvlinks = 0;
  // What the findings hold against each line of the ranking; empty texts when nothing.
  Text memory_doubts, compute_doubts, link_doubts;
};

// The figures are those of the observations; what is wrong with them, the findings alone decide.
MachineSummary summarize(const Observations& seen, const CardDatabase& cards,
                         const std::vector<Finding>& findings);

// Every word reached its owner, and neither a check of this direction nor the sums over all cards
// failed, was skipped or stayed unclear.
bool pair_is_trusted(const std::vector<Finding>& findings, int from, int to);

// Memory clock first, then compute and cooling, then NVLink: the order that the article measured.
std::vector<Text> rank_speed(const MachineSummary& machine);
std::vector<Text> rank_difference(const MachineSummary& now, const MachineSummary& before);

}  // namespace lockstep::probe
