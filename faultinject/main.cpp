// lockstep fault: plants every fault of the catalogue and expects each to be caught and named.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/base/golden_folder.h"
#include "engine/base/process.h"
#include "engine/base/table.h"
#include "faultinject/campaign.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct FaultFlags {
  CampaignOptions campaign;
  std::vector<std::string> only;
  bool list = false;
  bool json = false;
};

int list_faults(bool as_json) {
  Table table({{"fault"}, {"what it does"}});
  Json json = Json::array();
  for (const FaultPoint& point : fault_points()) {
    table.add_row({std::string(point.name), std::string(point.effect)});
    json.push_back({{"name", point.name}, {"effect", point.effect}});
  }
  if (as_json) {
    fmt::print("{}\n", json.dump(1));
  } else {
    table.print();
  }
  return 0;
}

std::vector<CatalogueRow> selected_rows(const std::vector<std::string>& only) {
  std::vector<CatalogueRow> rows;
  for (const CatalogueRow& row : built_in_catalogue()) {
    const bool wanted =
        only.empty() || std::find(only.begin(), only.end(), row.point()) != only.end();
    if (wanted) rows.push_back(row);
  }
  if (rows.empty()) fail_with(ExitCode::usage, "--only: the catalogue has no such fault");
  return rows;
}

int run_campaign(const FaultFlags& flags) {
  Table table({{"verdict"}, {"fault"}, {"detector"}, {"found"}});
  Json json = Json::array();
  bool all_named = true;
  for (const CatalogueRow& row : selected_rows(flags.only)) {
    if (stderr_is_terminal()) fmt::print(stderr, "planting {} ...\n", row.fault);
    const Finding finding = run_row(row, flags.campaign, true);
    all_named = all_named && finding.named;
    const std::string found = finding.caught ? finding.found : "not caught";
    table.add_row({finding.named ? "PASS" : "FAIL", row.fault, detector_name(row.detector), found});
    json.push_back({{"fault", row.fault},
                    {"detector", detector_name(row.detector)},
                    {"caught", finding.caught},
                    {"named", finding.named},
                    {"expected", row.names},
                    {"found", finding.found}});
  }
  if (flags.json) {
    fmt::print("{}\n", json.dump(1));
  } else {
    table.print();
  }
  return static_cast<int>(all_named ? ExitCode::pass : ExitCode::fail);
}

int fault_main(int argc, char** argv) {
  CLI::App app("Plant every fault of the catalogue; each must be caught and named");
  FaultFlags flags;
  flags.campaign.programs = sibling_program("");
  app.add_flag("--list", flags.list, "List the fault points");
  app.add_option("--only", flags.only, "Fault points to plant (default: all)");
  app.add_option("--model", flags.campaign.model, "Checkpoint (default: the embedded one)");
  app.add_option("--oracle", flags.campaign.oracle, "Oracle prefix (default: the embedded one)");
  app.add_flag("--json", flags.json, "Print JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  if (flags.list) return list_faults(flags.json);
  if (flags.campaign.model.empty()) flags.campaign.model = golden_folder() / "tiny-qwen3_5";
  if (flags.campaign.oracle.empty()) flags.campaign.oracle = golden_folder() / "oracle/public";
  return run_campaign(flags);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-fault", [&] { return lockstep::fault_main(argc, argv); });
}
