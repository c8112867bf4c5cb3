// The memory of one synthetic card: what was written last, seen through what is broken.
#pragma once

#include "hardware-probe/backend/backend.h"
#include "hardware-probe/sim/machine.h"

namespace lockstep::probe::sim {

class SimMemory {
 public:
  void hold(int64_t bytes) { n_words_ = bytes / 8; }
  int64_t bytes() const { return n_words_ * 8; }
  void fill(const Pattern& pattern, double now_s) {
    pattern_ = pattern;
    written_s_ = now_s;
  }
  // Reads every word back and compares. Healthy words need no loop: they hold what was written.
  Mismatches verify(const Pattern& expected, const Chip& chip, double temperature_c,
                    double now_s) const;

 private:
  uint64_t read(uint64_t index, const Chip& chip, double temperature_c, double now_s) const;
  uint64_t alias(uint64_t index, const Chip& chip) const;

  int64_t n_words_ = 0;
  Pattern pattern_;
  double written_s_ = 0;
};

}  // namespace lockstep::probe::sim
