// Raw samples of `lockstep bench ops`, and what they are a share of.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "validation/receipt/source_digest.h"
#include "validation/verdict.h"

namespace lockstep {

struct BenchRow {
  std::string op;
  std::string what;
  int n_tokens = 0;
  double bytes = 0;                       // that must be moved at least
  double seconds = 0;                     // the median of the samples
  std::vector<double> samples;            // seconds
  double roof_bytes_per_s = 0;            // of this kind of work; 0: reading
  std::vector<std::string> folders = {};  // of engine/ops whose kernels it times
};

struct BenchReport {
  std::string device;
  double read_bytes_per_s = 0;  // measured in the same run
  std::vector<BenchRow> rows;

  double share(const BenchRow& row) const {
    const double roof = row.roof_bytes_per_s > 0 ? row.roof_bytes_per_s : read_bytes_per_s;
    return row.bytes / row.seconds / roof;
  }
};

// Throws Error with the program's words.
BenchReport run_bench_ops(const std::filesystem::path& program);
BenchReport parse_bench(const std::string& json);

// What is wrong with it; empty when every row has samples whose median it states.
std::string bench_fault(const BenchReport& report);

// The folders that no row times.
std::vector<std::string> untimed(const BenchReport& report, const SourceUnits& units);

// "bench" in receipts.
std::string bench_json(const BenchReport& report);

}  // namespace lockstep
