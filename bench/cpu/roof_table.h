// The roofs of one run, each measured when it is first asked for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "engine/base/thread_pool.h"

namespace lockstep {

class RoofTable {
 public:
  explicit RoofTable(std::string cpu_target) : cpu_target_(std::move(cpu_target)) {}

  // FLOP/s of the CPU target.
  double fma(ThreadPool& pool);
  // Bytes/s over a buffer of n_bytes; sizes within 10 % share one measurement.
  double read(int64_t n_bytes, ThreadPool& pool);

 private:
  std::string cpu_target_;
  std::map<int, double> fma_;                       // by threads
  std::map<std::pair<int, int64_t>, double> read_;  // by threads and size class
};

}  // namespace lockstep
