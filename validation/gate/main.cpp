// lockstep gate: the main job. Prints a table, writes a receipt and an HTML report.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/golden_folder.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "validation/compare/report_text.h"
#include "validation/gate/gate.h"
#include "validation/gate/html_report.h"
#include "validation/gate/receipt.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  GateOptions gate;
  fs::path out = "lockstep-report";
  bool quick = false;
  bool json = false;
  bool list = false;
};

void add_options(CLI::App& app, Arguments& arguments) {
  app.add_flag("--quick", arguments.quick, "The quick gate (the only one on a CPU; the default)");
  app.add_option("--model", arguments.gate.model, "Checkpoint folder (default: the golden model)");
  app.add_option("--oracle", arguments.gate.oracle,
                 "Path of the oracle without .json / .safetensors (default: the golden model's)");
  app.add_option("--out", arguments.out, "Folder for receipt.json and report.html")
      ->capture_default_str();
  app.add_option("--fault", arguments.gate.fault,
                 "Plant a fault in every run: the gate must turn red");
  app.add_option("--only", arguments.gate.only, "Only these steps (see --list)")->delimiter(',');
  app.add_option("--engine", arguments.gate.engine,
                 "The engine to judge (default: lockstep-generate beside this program)");
  app.add_option("--weights", arguments.gate.weights,
                 "The checkpoint tool (default: lockstep-weights beside this program)");
  app.add_flag("--json", arguments.json, "Print the receipt instead of the table");
  app.add_flag("--list", arguments.list, "List the steps and stop");
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
    if (step.verdict != Verdict::pass) fmt::print("{:<20}again: {}\n", "", step.repro);
    std::fflush(stdout);
  };
  return progress;
}

void write_outputs(const Arguments& arguments, const GateReport& report, const ReceiptFacts& facts,
                   const std::string& receipt) {
  std::error_code error;
  fs::create_directories(arguments.out, error);
  if (error) fail("--out {}: {}", arguments.out.string(), error.message());
  write_file_atomically(arguments.out / "receipt.json", receipt);
  write_file_atomically(arguments.out / "report.html", html_report(report, facts));
}

int print_steps() {
  for (const auto& [id, title] : quick_gate_steps()) fmt::print("{:<16} {}\n", id, title);
  return 0;
}

int gate(Arguments& arguments, const std::string& command) {
  using Clock = std::chrono::steady_clock;
  GateOptions& options = arguments.gate;
  if (options.model.empty()) options.model = golden_folder() / "tiny-qwen3_5";
  if (options.oracle.empty()) options.oracle = golden_folder() / "oracle" / "public";
  ReceiptFacts facts{command, options, utc_now(), 0};
  const Clock::time_point start = Clock::now();
  const bool colour = stdout_has_colour();
  const GateReport report =
      run_quick_gate(options, arguments.json ? GateProgress{} : table_progress(colour));
  facts.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::string receipt = make_receipt(report, facts);
  write_outputs(arguments, report, facts, receipt);
  if (arguments.json) {
    fmt::print("{}", receipt);
  } else {
    for (const std::string& line : report.not_checked) fmt::print("not checked: {}\n", line);
    fmt::print("receipt: {}\nreport:  {}\nverdict: {} in {:.1f} s\n",
               (arguments.out / "receipt.json").string(), (arguments.out / "report.html").string(),
               coloured_verdict(report.verdict, colour), facts.seconds);
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  return arguments.list ? print_steps() : gate(arguments, command_line(argc, argv));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-gate", [&] { return lockstep::run(argc, argv); });
}
