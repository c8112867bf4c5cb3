// lockstep fault: plants every fault of the catalogue and expects each to be caught and named, and
// says what other engines' criteria would have made of the same runs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/base/golden_folder.h"
#include "engine/base/table.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config.h"
#include "validation/mutants/mutant_run.h"
#include "validation/oracle.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct FaultFlags {
  GateOptions gate;
  std::vector<std::string> only;
  int sample = -1;
  bool list = false;
  bool json = false;
};

// One criterion over all mutants that can be seen at all.
struct Tally {
  int n_mutants = 0;
  int n_gate = 0;
  int n_nmse = 0;
  int n_allclose = 0;
};

bool is_wanted(const FaultFlags& flags, const std::string& point) {
  return flags.only.empty() ||
         std::find(flags.only.begin(), flags.only.end(), point) != flags.only.end();
}

void require_known_points(const FaultFlags& flags) {
  const auto& points = fault_points();
  for (const std::string& name : flags.only) {
    if (std::any_of(points.begin(), points.end(), [&](const auto& p) { return p.name == name; })) {
      continue;
    }
    fail_with(ExitCode::usage, "--only {}: no such fault point; see --list", name);
  }
}

int list_faults(const FaultFlags& flags) {
  Table table({{"fault"}, {"selectors"}, {"what it does"}});
  Json json = Json::array();
  for (const FaultPoint& point : fault_points()) {
    if (!is_wanted(flags, std::string(point.name))) continue;
    const std::string selectors = selector_names(point.selectors);
    table.add_row({std::string(point.name), selectors, std::string(point.effect)});
    json.push_back({{"name", point.name}, {"selectors", selectors}, {"effect", point.effect}});
  }
  if (flags.json) {
    fmt::print("{}\n", json.dump(1));
  } else {
    table.print();
  }
  return 0;
}

std::vector<CatalogueRow> selected_rows(const FaultFlags& flags) {
  const auto all = catalogue_sample(built_in_catalogue(), flags.sample);
  std::vector<CatalogueRow> rows;
  for (const CatalogueRow& row : all) {
    if (is_wanted(flags, row.point())) rows.push_back(row);
  }
  if (rows.empty()) fail_with(ExitCode::usage, "--only: --sample leaves none of these faults");
  return rows;
}

bool as_expected(const CatalogueRow& row, const MutantResult& result) {
  if (!row.caught()) return !result.killed;
  return result.killed && result.killer == row.check && result.found.starts_with(row.names);
}

// "not judged": the runs that showed the fault hold no tensor that could be compared.
const char* peer_verdict(const MutantResult& result, bool red) {
  if (!result.has_tensors) return "not judged";
  return red ? "red" : "passes";
}

Json row_json(const CatalogueRow& row, const MutantResult& result) {
  return {{"fault", row.fault},
          {"as_expected", as_expected(row, result)},
          {"killed", result.killed},
          {"killer", result.killer},
          {"found", result.found},
          {"expected", row.names},
          {"equivalent", row.equivalent},
          {"worst_nmse", result.has_tensors ? Json(result.worst_nmse) : Json()},
          {"nmse", peer_verdict(result, result.worst_nmse > kPeerNmse)},
          {"allclose", peer_verdict(result, result.fails_allclose)},
          {"seconds", result.seconds}};
}

void count(const CatalogueRow& row, const MutantResult& result, Tally& tally) {
  if (!row.equivalent.empty()) return;
  ++tally.n_mutants;
  tally.n_gate += result.killed ? 1 : 0;
  tally.n_nmse += result.has_tensors && result.worst_nmse > kPeerNmse ? 1 : 0;
  tally.n_allclose += result.has_tensors && result.fails_allclose ? 1 : 0;
}

// The honest engine by the same criteria: a red one is a false alarm.
MutantResult honest_run(const GateOptions& gate) {
  CatalogueRow honest;
  honest.check = mutant_ladder()[0];
  return run_mutant(honest, gate, false);
}

// Every run would fail, and each failure pass for a caught fault or for a missed one.
void require_usable(const GateOptions& gate) {
  load_model_config(gate.model);
  const Checkpoint checkpoint(gate.model);
  read_oracle(gate.oracle);
}

int run_campaign(const FaultFlags& flags) {
  require_usable(flags.gate);
  Table table({{"verdict"}, {"fault"}, {"check"}, {"found"}, {"NMSE 5e-4"}, {"allclose"}});
  Json rows = Json::array();
  Tally tally;
  bool all_expected = true;
  for (const CatalogueRow& row : selected_rows(flags)) {
    if (stderr_is_terminal()) fmt::print(stderr, "planting {} ...\n", row.fault);
    const MutantResult result = run_mutant(row, flags.gate, true);
    const bool expected = as_expected(row, result);
    all_expected = all_expected && expected;
    count(row, result, tally);
    table.add_row({expected ? "PASS" : "FAIL", row.fault, result.killed ? result.killer : "none",
                   result.killed ? result.found : row.equivalent + row.survives,
                   peer_verdict(result, result.worst_nmse > kPeerNmse),
                   peer_verdict(result, result.fails_allclose)});
    rows.push_back(row_json(row, result));
  }
  const MutantResult honest = honest_run(flags.gate);
  const Json json = {{"mutants", tally.n_mutants},
                     {"killed_by_gate", tally.n_gate},
                     {"killed_by_nmse", tally.n_nmse},
                     {"killed_by_allclose", tally.n_allclose},
                     {"honest", row_json(CatalogueRow{}, honest)},
                     {"rows", rows}};
  if (flags.json) {
    fmt::print("{}\n", json.dump(1));
  } else {
    table.print();
    fmt::print("of {} mutants: gate {}, NMSE <= 5e-4 {}, allclose {}\n", tally.n_mutants,
               tally.n_gate, tally.n_nmse, tally.n_allclose);
    fmt::print("honest engine: gate {}, NMSE {}, allclose {}\n", honest.killed ? "red" : "passes",
               peer_verdict(honest, honest.worst_nmse > kPeerNmse),
               peer_verdict(honest, honest.fails_allclose));
  }
  return static_cast<int>(all_expected && !honest.killed ? ExitCode::pass : ExitCode::fail);
}

int fault_main(int argc, char** argv) {
  CLI::App app("Plant every fault of the catalogue; each must be caught and named");
  FaultFlags flags;
  app.add_flag("--list", flags.list,
               "List the fault points and the selectors of each: NAME@layer=2");
  app.add_option("--only", flags.only, "Fault points to plant (default: all)");
  app.add_option("--sample", flags.sample, "This many rows, spread over the catalogue")
      ->check(CLI::PositiveNumber);
  app.add_option("--model", flags.gate.model, "Checkpoint (default: the embedded one)");
  app.add_option("--oracle", flags.gate.oracle, "Oracle prefix (default: the embedded one)");
  app.add_flag("--json", flags.json, "Print JSON");
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  require_known_points(flags);
  if (flags.list) return list_faults(flags);
  if (flags.gate.model.empty()) flags.gate.model = golden_folder() / "tiny-qwen3_5";
  if (flags.gate.oracle.empty()) flags.gate.oracle = golden_folder() / "oracle/public";
  return run_campaign(flags);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-fault", [&] { return lockstep::fault_main(argc, argv); });
}
