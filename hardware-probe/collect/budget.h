// How long and how often each mode measures.
#pragma once

#include "hardware-probe/observe/observations.h"

namespace lockstep::probe {

struct Budget {
  double idle_s;
  int bandwidth_samples, transfer_samples, peer_samples;
  int chunks;
  int memory_rounds, hot_memory_rounds;  // sets of patterns
  double preheat_s;
  int sm_rounds, sm_hot_rounds, sm_pulses;
  double solo_min_s, solo_max_s, all_min_s, all_max_s;
  double sample_hz;
  double fade_idle_s;
};

inline Budget budget_of(Mode mode) {
  switch (mode) {
    case Mode::quick:
      return {0, 10, 5, 5, 64, 1, 0, 0, 4, 0, 0, 0, 0, 20, 20, 5, 0};
    case Mode::standard:
      return {20, 20, 10, 10, 128, 4, 4, 10, 16, 16, 8, 60, 90, 90, 150, 5, 0};
    case Mode::deep:
      return {60, 40, 20, 20, 128, 40, 40, 20, 64, 64, 60, 180, 600, 240, 900, 2, 300};
  }
  return {};
}

}  // namespace lockstep::probe
