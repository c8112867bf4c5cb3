// lockstep gate: the main job. Prints a table, writes a receipt and an HTML report.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "engine/base/cli.h"
#include "engine/base/cli_checks.h"
#include "engine/base/error.h"
#include "engine/base/golden_folder.h"
#include "engine/base/mapped_file.h"
#include "engine/base/ungated_ops.h"
#include "validation/compare/report_text.h"
#include "validation/gate/bench_figures.h"
#include "validation/gate/gate.h"
#include "validation/gate/html_report.h"
#include "validation/gate/receipt.h"
#include "validation/receipt/coverage.h"
#include "validation/repro_line.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  GateOptions gate;
  std::string policy = "quick";
  fs::path out = "lockstep-report";
  fs::path receipts;  // append-only folder for a further copy of the receipt
  fs::path waivers;
  fs::path key_file;
  std::optional<int> n_mutants;
  bool json = false;
  bool list = false;
  bool print_bits = false;
};

void add_options(CLI::App& app, Arguments& arguments) {
  GateOptions& gate = arguments.gate;
  auto* policy = app.add_option("--policy", arguments.policy,
                                "quick (default), full, gpu, release, or a policy file");
  app.add_flag_callback(
         "--quick", [&] { arguments.policy = "quick"; }, "Same as --policy quick")
      ->excludes(policy);
  app.add_flag_callback(
         "--full", [&] { arguments.policy = "full"; }, "Same as --policy full")
      ->excludes(policy);
  app.add_option("--model", gate.model, "Checkpoint folder (default: the golden model)");
  app.add_option("--oracle", gate.oracle,
                 "Path of the oracle without .json / .safetensors (default: the golden model's)");
  app.add_option("--out", arguments.out, "Folder for receipt.json and report.html")
      ->capture_default_str();
  app.add_option("--receipt", arguments.receipts, "Add the receipt to this folder too");
  app.add_option("--sign", arguments.key_file, "Sign the receipt with this Ed25519 key (PEM)");
  app.add_option("--fault", gate.fault, "Plant a fault in every run: the gate must turn red");
  app.add_option("--only", gate.only, "Only these checks (see --list)")->delimiter(',');
  app.add_option("--prompts", gate.prompts, "Only these prompts of the oracle")->delimiter(',');
  app.add_option("--mutants", arguments.n_mutants, "This many of the catalogue's mutants")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--engine", gate.engine,
                 "The engine to judge (default: lockstep-generate beside this program)");
  app.add_option("--weights", gate.weights,
                 "The checkpoint tool (default: lockstep-weights beside this program)");
  app.add_option("--source", gate.source,
                 "Source tree that receipts vouch for (default: the one this was built in)");
  app.add_option("--waivers", arguments.waivers, "Default: SOURCE/ci/waivers.json");
  app.add_option("--baseline", gate.baseline, "Programs that the bench gate compares with");
  OpTools& tools = gate.op_tools;
  app.add_option("--op-tests", tools.tests, "Folder of op_tests.json (default: ../tests)");
  app.add_option("--op-exact", tools.exact, "Default: lockstep-ops-exact beside this program");
  app.add_option("--op-bench", tools.bench, "Default: lockstep-bench beside this program");
  app.add_option("--sanitizer", tools.sanitizer, "compute-sanitizer, for CUDA ops")
      ->capture_default_str();
  app.add_option("--sanitizer-seconds", tools.sanitizer_seconds, "New runs begin for this long")
      ->check(number_in(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--workers", tools.n_workers, "Op tests at once (0: one a core)")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--bench", gate.bench, "Figures of 'lockstep bench cpu|ops --json' to plot");
  app.add_option("--machine", gate.machine,
                 "Profile of this machine (lockstep probe --profile FILE): stored, doubts judged");
  app.add_flag("--json", arguments.json, "Print JSON instead of the table");
  app.add_flag("--list", arguments.list, "List the checks (with --only: these) and stop");
  app.add_flag("--print-bits", arguments.print_bits,
               "Print what pinned-bits would compare with, as this engine makes it, and stop");
}

// Streams the table: a line appears when its step ends, and on a terminal while it runs.
GateProgress table_progress(bool colour) {
  const bool live = stdout_has_colour();
  GateProgress progress;
  progress.begin = [live](const GateStep& step) {
    if (!live) return;
    fmt::print("{:<10} {:>6}  {}", "...", "", step.title);
    std::fflush(stdout);
  };
  progress.end = [live, colour](const GateStep& step) {
    const std::string pad(10 - verdict_name(step.verdict).size(), ' ');
    fmt::print("{}{}{} {:>4.1f} s  {}\n", live ? "\r\x1b[K" : "",
               coloured_verdict(step.verdict, colour), pad, step.seconds, step.title);
    fmt::print("{:<20}{}\n", "", step.detail);
    if (step.verdict != Verdict::pass) {
      fmt::print("{:<20}again: {}\n", "", pasteable(step.repro));
    }
    std::fflush(stdout);
  };
  return progress;
}

// What is written when the checks have been made.
void prepare_outputs(const Arguments& arguments) {
  const auto prepare = [](const char* flag, const fs::path& folder, const char* file) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) fail("{} {}: {}", flag, folder.string(), error.message());
    require_writable(flag, folder / file);
  };
  prepare("--out", arguments.out, "receipt.json");
  if (!arguments.receipts.empty()) prepare("--receipt", arguments.receipts, "receipt.json");
}

void write_outputs(const Arguments& arguments, const GateReport& report, const ReceiptFacts& facts,
                   const std::string& receipt) {
  write_file_atomically(arguments.out / "receipt.json", receipt);
  write_file_atomically(arguments.out / "report.html", html_report(report, facts));
  if (!arguments.receipts.empty()) add_receipt(arguments.receipts, receipt);
}

int print_checks(const GateOptions& options) {
  const auto& only = options.only;
  for (const auto& [id, title] : gate_checks()) {
    if (!only.empty() && std::find(only.begin(), only.end(), id) == only.end()) continue;
    const auto& checks = options.policy.checks;
    const auto listed = std::find_if(checks.begin(), checks.end(),
                                     [&](const PolicyCheck& check) { return check.id == id; });
    const char* part = listed == checks.end() ? "-" : listed->required ? "required" : "optional";
    fmt::print("{:<16} {:<9} {}\n", id, part, title);
  }
  return 0;
}

// Receipts and waivers are printed with every policy; only the check `receipts` judges them.
std::vector<std::string> notes(const GateOptions& options, const GateReport& report) {
  std::vector<std::string> lines;
  for (const Waiver& waiver : options.waivers) {
    lines.push_back(fmt::format("waiver: {} by {} until {}{}: {}", waiver.subject(), waiver.owner,
                                waiver.expires, waiver.expired(options.today) ? " (expired)" : "",
                                waiver.reason));
  }
  if (options.source.empty()) return lines;
  const bool judged = std::any_of(report.steps.begin(), report.steps.end(),
                                  [](const GateStep& step) { return step.id == "receipts"; });
  for (const std::string& policy : required_policies(options.source / "ci/policy.json")) {
    const PolicyCoverage coverage =
        policy_coverage(policy, {options.source, options.receipts, options.waivers, options.today});
    lines.push_back(
        fmt::format("receipts of policy {} ({}): {}", policy,
                    judged ? "the check above judges them" : "not judged: this run asked for none",
                    coverage_words(coverage)));
    if (coverage.verdict == Verdict::pass) continue;
    lines.push_back("  to judge them: " + pasteable(fmt::format("lockstep receipt verify {}",
                                                                options.receipts.string())));
  }
  return lines;
}

bool golden_folder_exists() {
  try {
    return !golden_folder().empty();
  } catch (const Error&) {
    return false;
  }
}

void fill_defaults(Arguments& arguments) {
  GateOptions& options = arguments.gate;
  options.policy = load_policy(arguments.policy);
  options.policy_argument = arguments.policy;
  if (arguments.n_mutants) options.policy.n_mutants = *arguments.n_mutants;
  // The ops of a card need no model: a tree without one can judge them.
  const bool may_lack_model = options.policy.backend == "cuda" && !golden_folder_exists();
  if (options.model.empty() && !may_lack_model) options.model = golden_folder() / "tiny-qwen3_5";
  if (options.oracle.empty() && !may_lack_model) {
    options.oracle = golden_folder() / "oracle" / "public";
  }
  if (options.source.empty()) options.source = source_root();
  if (arguments.waivers.empty() && !options.source.empty()) {
    arguments.waivers = options.source / "ci/waivers.json";
  }
  options.receipts =
      arguments.receipts.empty() ? options.source / "ci/receipts" : arguments.receipts;
  options.today = utc_today();
  for (const fs::path& file : options.bench) read_bench_figures(file);  // refused before the run
  if (!arguments.waivers.empty()) options.waivers = read_waivers(arguments.waivers);
}

void print_end(const Arguments& arguments, const GateReport& report, double seconds) {
  fmt::print("machine: {}\n", report.machine.line());
  for (const std::string& line : report.not_checked) fmt::print("not checked: {}\n", line);
  for (const std::string& line : report.notes) fmt::print("{}\n", line);
  const MutationReport& mutation = report.mutation;
  if (mutation.total > 0) {
    fmt::print("mutants: {} of {} killed, {} equivalent, score {:.3f}\n", mutation.killed,
               mutation.total, mutation.equivalent, mutation.score());
  }
  fmt::print("{} checks, {} proven able to fail\n", report.steps.size(), report.n_proven());
  fmt::print("receipt of this run: {}\nreport:  {}\nverdict: {} in {:.1f} s\n",
             (arguments.out / "receipt.json").string(), (arguments.out / "report.html").string(),
             coloured_verdict(report.verdict, stdout_has_colour()), seconds);
}

// What a machine without the sources has instead of them: what they were at the build.
void announce_ungated_ops(const GateOptions& options, bool json) {
  if (options.policy.backend == "cpu") return;
  for (const std::string& line : ungated_ops()) {
    fmt::print(json ? stderr : stdout, "{}\n", line);
  }
}

int gate(Arguments& arguments, const std::string& command) {
  using Clock = std::chrono::steady_clock;
  const GateOptions& options = arguments.gate;
  prepare_outputs(arguments);
  announce_ungated_ops(options, arguments.json);
  ReceiptFacts facts{command, options, utc_now(), 0, arguments.key_file};
  const Clock::time_point start = Clock::now();
  GateReport report =
      run_gate(options, arguments.json ? GateProgress{} : table_progress(stdout_has_colour()));
  report.notes = notes(options, report);
  facts.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  write_outputs(arguments, report, facts, make_receipt(report, facts));
  if (arguments.json) {
    fmt::print("{}", gate_json(report, facts.seconds));
  } else {
    print_end(arguments, report, facts.seconds);
  }
  return verdict_exit_code(report.verdict);
}

std::string command_line(int argc, char** argv) {
  std::string command = "lockstep gate";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return command;
}

int run(int argc, char** argv) {
  CLI::App app{"Everything that a change must pass", "lockstep gate"};
  Arguments arguments;
  add_options(app, arguments);
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  fill_defaults(arguments);
  require_known_checks(arguments.gate);
  if (arguments.print_bits) {
    if (!arguments.gate.prompts.empty()) {
      fail_with(ExitCode::usage, "--prompts: pinned bits are those of all prompts; leave it out");
    }
    fmt::print("{}", pinned_bits(arguments.gate));
    return 0;
  }
  return arguments.list ? print_checks(arguments.gate) : gate(arguments, command_line(argc, argv));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-gate", [&] { return lockstep::run(argc, argv); });
}
