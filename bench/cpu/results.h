// What one run of the benchmark measured, gathered over runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cpu/settings.h"
#include "bench/work.h"
#include "hardware-probe/report/machine.h"

namespace lockstep {

enum class Roof : uint8_t { none, fma, read };

// "fma" or "read"; empty for none.
std::string roof_name(Roof roof);

struct Series {
  std::string section;  // "roof", "op" or "engine"
  std::string name;     // within its section
  int n_ranks = 1;
  int n_threads = 1;  // of each rank
  int64_t n_tokens = 0;
  std::string unit;
  Roof roof = Roof::none;
  std::optional<double> floor;  // share of the roof that the design asks for

  // False when a run exceeded its roof by more than measurement allows: neighbours disturbed the
  // roof, and no share of this series means anything.
  bool credible() const;

  std::vector<double> values;  // one a run, in `unit`
  std::vector<double> shares;  // of the roof measured in the same run; empty without roof
};

class Results {
 public:
  // Adds a run's value to the series of the same section, name, ranks, threads, tokens and unit.
  void add(const Series& key, double value, double share = 0);

  const std::vector<Series>& series() const { return series_; }

 private:
  std::vector<Series> series_;
};

// What the numbers belong to.
struct BenchContext {
  std::string model;
  std::string cpu_target;
  int n_cores = 0;
  int n_runs = 0;
  double load = 0;  // runnable processes of the whole machine in the minute before, as uptime says
  WeightBytes weights;
  probe::MachineRecord machine;
};

std::string results_json(const BenchContext& context, const Results& results);
void print_results(const BenchContext& context, const Results& results);

}  // namespace lockstep
