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
  double peer_gbps = 0, peer_latency_us = 0;  // slowest pair; 0 = none
  bool peers_trusted = false;                 // the ladder passed on every pair
  int nvlinks = 0;
};

MachineSummary summarize(const Observations& seen, const CardDatabase& cards);

// Memory clock first, then compute and cooling, then NVLink: the order that the article measured.
std::vector<Text> rank_speed(const MachineSummary& machine);
std::vector<Text> rank_difference(const MachineSummary& now, const MachineSummary& before);

}  // namespace lockstep::probe
