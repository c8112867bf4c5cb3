// lockstep receipt: do receipts cover the sources, what does one say, how do two differ?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "validation/compare/report_text.h"
#include "validation/receipt/baked_sources.h"
#include "validation/receipt/coverage.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct Arguments {
  fs::path receipts;
  fs::path source;
  fs::path policy;
  fs::path waivers;
  std::string today;
  fs::path exact;
  fs::path out;
  fs::path a;
  fs::path b;
  bool json = false;
};

Json coverage_json(const PolicyCoverage& coverage) {
  Json units = Json::array();
  for (const UnitCoverage& unit : coverage.units) {
    units.push_back(
        {{"unit", unit.unit}, {"verdict", verdict_name(unit.verdict)}, {"detail", unit.detail}});
  }
  return {{"policy", coverage.policy},
          {"verdict", verdict_name(coverage.verdict)},
          {"receipt", coverage.receipt},
          {"reasons", coverage.reasons},
          {"units", units}};
}

void print_coverage(const PolicyCoverage& coverage) {
  const bool colour = stdout_has_colour();
  fmt::print("{} policy {}: {}\n", coloured_verdict(coverage.verdict, colour), coverage.policy,
             coverage.receipt.empty() ? "no receipt" : coverage.receipt);
  for (const std::string& reason : coverage.reasons) fmt::print("  {}\n", reason);
  for (const UnitCoverage& unit : coverage.units) {
    fmt::print("  {} {}: {}\n", coloured_verdict(unit.verdict, colour), unit.unit, unit.detail);
  }
}

CoverageInputs coverage_inputs(Arguments& arguments) {
  if (arguments.source.empty()) arguments.source = source_root();
  if (arguments.policy.empty()) arguments.policy = arguments.source / "ci/policy.json";
  if (arguments.waivers.empty()) arguments.waivers = arguments.source / "ci/waivers.json";
  if (arguments.exact.empty()) arguments.exact = sibling_program("lockstep-ops-exact");
  return {arguments.source, arguments.receipts, read_waivers(arguments.waivers),
          arguments.today.empty() ? utc_today() : arguments.today, arguments.exact};
}

int verify(Arguments& arguments) {
  if (!fs::is_directory(arguments.receipts)) {
    fail("{}: {}: name a folder of receipts, as ci/receipts", arguments.receipts.string(),
         fs::exists(arguments.receipts) ? "is no folder" : "does not exist");
  }
  const CoverageInputs inputs = coverage_inputs(arguments);
  Verdict verdict = Verdict::pass;
  Json policies = Json::array();
  for (const std::string& policy : required_policies(arguments.policy)) {
    const PolicyCoverage coverage = policy_coverage(policy, inputs);
    verdict = merge(verdict, coverage.verdict);
    if (arguments.json) {
      policies.push_back(coverage_json(coverage));
    } else {
      print_coverage(coverage);
    }
  }
  if (arguments.json) {
    fmt::print("{}\n", Json{{"verdict", verdict_name(verdict)}, {"policies", policies}}.dump(1));
  }
  return verdict_exit_code(verdict);
}

// At every build: digests of the sources, and which ops a receipt covers.
int bake(Arguments& arguments) {
  arguments.receipts = arguments.source / "ci/receipts";
  CoverageInputs inputs = coverage_inputs(arguments);
  inputs.exact_program.clear();  // it may not be built yet; verify computes again
  std::string ungated;
  for (const UnitCoverage& op : policy_coverage("gpu", inputs).units) {
    if (op.verdict != Verdict::pass) ungated += op.unit + ": " + op.detail + "\n";
  }
  fs::create_directories(arguments.out);
  write_file_atomically(arguments.out / "sources.json", baked_sources(arguments.source));
  write_file_atomically(arguments.out / "ungated-ops.txt", ungated);
  return 0;
}

int diff(const Arguments& arguments) {
  const std::string a = read_text_file(arguments.a);
  const std::string b = read_text_file(arguments.b);
  verify_receipt(a, arguments.a.string());
  verify_receipt(b, arguments.b.string());
  const std::vector<std::string> lines = receipt_differences(a, b);
  for (const std::string& line : lines) fmt::print("{}\n", line);
  return static_cast<int>(lines.empty() ? ExitCode::pass : ExitCode::fail);
}

int show(const Arguments& arguments) {
  fmt::print("{}", receipt_text(read_text_file(arguments.a), arguments.a.filename().string()));
  return 0;
}

int run(int argc, char** argv) {
  CLI::App app{"Receipts of gates", "lockstep receipt"};
  app.require_subcommand(1);
  Arguments arguments;
  CLI::App* verify_command = app.add_subcommand(
      "verify", "Does the newest receipt of each required policy cover the present sources?");
  verify_command->add_option("DIR", arguments.receipts, "Folder of receipts")->required();
  verify_command->add_option("--source", arguments.source,
                             "Source tree (default: the one this program was built in)");
  verify_command->add_option("--policy", arguments.policy, "Default: SOURCE/ci/policy.json");
  verify_command->add_option("--waivers", arguments.waivers, "Default: SOURCE/ci/waivers.json");
  verify_command->add_option("--today", arguments.today, "Judge waivers on this day (2026-01-31)");
  verify_command->add_option("--op-exact", arguments.exact,
                             "What computes integer-exact outputs again (default: "
                             "lockstep-ops-exact beside this program)");
  verify_command->add_flag("--json", arguments.json, "Print JSON");
  CLI::App* bake_command = app.add_subcommand(
      "bake", "Write sources.json and ungated-ops.txt for programs that leave their sources");
  bake_command->add_option("--source", arguments.source, "Source tree")->required();
  bake_command->add_option("--out", arguments.out, "Folder")->required();
  CLI::App* diff_command = app.add_subcommand("diff", "What differs between two receipts");
  diff_command->add_option("A", arguments.a, "Receipt")->required();
  diff_command->add_option("B", arguments.b, "Receipt")->required();
  CLI::App* show_command = app.add_subcommand("show", "A receipt in a few lines");
  show_command->add_option("FILE", arguments.a, "Receipt")->required();
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  if (*verify_command) return verify(arguments);
  if (*bake_command) return bake(arguments);
  return *diff_command ? diff(arguments) : show(arguments);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-receipt", [&] { return lockstep::run(argc, argv); });
}
