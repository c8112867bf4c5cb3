#include "validation/gate/ops_report.h"

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using Json = nlohmann::json;

Json programs_json(const std::vector<OpProgramRun>& programs) {
  Json list = Json::array();
  for (const OpProgramRun& program : programs) {
    Json failed = Json::array();
    Json skipped = Json::array();
    for (const OpCase& c : program.run.cases) {
      if (c.state == OpCase::State::failed) failed.push_back(c.name + ": " + c.message);
      if (c.state == OpCase::State::skipped) skipped.push_back(c.name);
    }
    list.push_back({{"program", program.program.program},
                    {"ops", program.program.ops},
                    {"passed", program.run.count(OpCase::State::passed)},
                    {"failed", failed},
                    {"skipped", skipped},
                    {"broken", program.run.broken}});
  }
  return list;
}

Json mutants_json(const OpMutantReport& report) {
  Json list = Json::array();
  for (const OpMutantResult& result : report.results) {
    list.push_back({{"name", result.mutant.name},
                    {"op", result.mutant.op},
                    {"caught", result.caught},
                    {"by", result.by}});
  }
  return list;
}

Json sanitizer_json(const SanitizerReport& report) {
  Json runs = Json::array();
  for (const SanitizerRun& run : report.runs) {
    runs.push_back({{"tool", run.tool},
                    {"program", run.program},
                    {"case", run.name},
                    {"verdict", verdict_name(run.verdict)},
                    {"detail", run.detail}});
  }
  return {{"runs", runs}, {"left_out", report.n_left_out}};
}

}  // namespace

std::string ops_json(const OpsReport& report) {
  Json json = Json::object();
  if (!report.card.name.empty()) {
    json["card"] = {{"name", report.card.name},
                    {"uuid", report.card.uuid},
                    {"driver", report.card.driver},
                    {"arch", report.card.arch},
                    {"multiprocessors", report.card.n_multiprocessors}};
  }
  if (!report.programs.empty()) json["tests"] = programs_json(report.programs);
  if (!report.mutants.results.empty()) json["mutants"] = mutants_json(report.mutants);
  if (!report.sanitizer.runs.empty()) json["sanitizer"] = sanitizer_json(report.sanitizer);
  if (!report.exact.empty()) json["exact"] = Json::parse(exact_json(report.exact));
  if (!report.bench.rows.empty()) json["bench"] = Json::parse(bench_json(report.bench));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep
