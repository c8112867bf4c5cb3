#include "validation/ops/op_bench.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/process.h"
#include "validation/engine_run.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// Samples are printed with fewer digits than the median is computed with.
constexpr double kPrinted = 1e-6;

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace

BenchReport run_bench_ops(const std::filesystem::path& program) {
  const ProcessResult result =
      run_process({program.string(), "ops", "--json"}, std::chrono::minutes(10));
  if (result.timed_out || result.exit_code != 0) {
    const std::string words = failure_reason(result.stderr_text);
    fail_with(ExitCode::could_not_judge, "bench ops: {}",
              words.empty() ? fmt::format("exit code {}", result.exit_code) : words);
  }
  return parse_bench(result.stdout_text);
}

BenchReport parse_bench(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    BenchReport report;
    report.device = json.at("device");
    report.read_bytes_per_s = json.at("read_bytes_per_s");
    for (const Json& row : json.at("rows")) {
      report.rows.push_back({row.at("op"), row.at("case"), row.at("tokens"), row.at("bytes"),
                             row.at("seconds"), row.at("samples").get<std::vector<double>>(),
                             row.value("roof_bytes_per_s", 0.0),
                             row.at("folders").get<std::vector<std::string>>()});
    }
    return report;
  } catch (const Json::exception&) {
    fail_with(ExitCode::could_not_judge, "bench ops: printed other JSON than expected");
  }
}

std::string bench_fault(const BenchReport& report) {
  if (report.rows.empty()) return "bench ops timed nothing";
  if (!(report.read_bytes_per_s > 0)) return "bench ops measured no bandwidth";
  for (const BenchRow& row : report.rows) {
    const std::string label = fmt::format("{}, {}, T {}", row.op, row.what, row.n_tokens);
    if (row.samples.empty()) return label + ": no samples";
    if (!(row.seconds > 0) || std::fabs(median_of(row.samples) / row.seconds - 1) > kPrinted) {
      return label + ": states another time than the median of its samples";
    }
  }
  return {};
}

std::vector<std::string> untimed(const BenchReport& report, const SourceUnits& units) {
  std::set<std::string> timed;
  for (const BenchRow& row : report.rows) timed.insert(row.folders.begin(), row.folders.end());
  std::vector<std::string> ops;
  for (const auto& [op, unused] : units) {
    if (!timed.contains(op)) ops.push_back(op);
  }
  return ops;
}

std::string bench_json(const BenchReport& report) {
  Json rows = Json::array();
  for (const BenchRow& row : report.rows) {
    rows.push_back({{"op", row.op},
                    {"folders", row.folders},
                    {"case", row.what},
                    {"tokens", row.n_tokens},
                    {"bytes", row.bytes},
                    {"seconds", row.seconds},
                    {"samples", row.samples},
                    {"roof_bytes_per_s", row.roof_bytes_per_s},
                    {"share", report.share(row)}});
  }
  return Json{
      {"device", report.device}, {"read_bytes_per_s", report.read_bytes_per_s}, {"rows", rows}}
      .dump();
}

}  // namespace lockstep
