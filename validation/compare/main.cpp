// lockstep compare: layer by layer against the oracle, or one dump against another.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "validation/compare/compare.h"
#include "validation/compare/dump_compare.h"
#include "validation/compare/report_json.h"
#include "validation/compare/report_text.h"
#include "validation/tolerance.h"

namespace lockstep {
namespace {

struct Arguments {
  EngineOptions engine;
  std::string oracle;
  std::vector<std::string> dump;
  std::vector<std::string> against;
  double max_rel_l2 = tolerance::kFp32RelL2;
  int timeout_s = 1800;
  bool json = false;
  bool verbose = false;
};

void add_options(CLI::App& app, Arguments& arguments) {
  EngineOptions& engine = arguments.engine;
  app.add_option("--model", engine.model, "Checkpoint folder");
  app.add_option("--oracle", arguments.oracle, "Path of the oracle without .json / .safetensors");
  app.add_option("--tp", engine.tp, "Ranks")->check(CLI::IsMember({1, 2}));
  app.add_option("--precision", engine.precision, "fp32 (every bit counts) or bf16 (as served)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--backend", engine.backend, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--prefill-grid", engine.prefill_grid, "Prefill in pieces of N positions")
      ->check(CLI::PositiveNumber);
  app.add_option("--fault", engine.fault, "Plant a fault: NAME[@layer,rank,round]");
  app.add_option("--mtp", engine.mtp, "Draft tokens a round")->check(CLI::Range(0, 5));
  app.add_option("--kv", engine.kv, "KV cache type");
  app.add_option("--shards", engine.shards, "Folder of shard files");
  app.add_option("--slots", engine.slots, "Requests that the engine runs together")
      ->check(CLI::Range(1, 8));
  app.add_option("--engine", engine.engine,
                 "The engine to judge (default: lockstep-generate beside this program)");
  app.add_option("--timeout", arguments.timeout_s, "Seconds that the engine may take")
      ->check(CLI::Range(1, 86400));
  app.add_option("--dump", arguments.dump, "Compare this dump (one file a rank) ...");
  app.add_option("--against", arguments.against, "... with this one, instead of running an engine");
  app.add_option("--max-rel-l2", arguments.max_rel_l2, "Limit for --dump")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--json", arguments.json, "Print the report as JSON");
  app.add_flag("--verbose", arguments.verbose, "Add every tap (JSON) or the worst prompt's layers");
}

std::vector<std::filesystem::path> paths(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

void print(const std::string& text) {
  fmt::print("{}", text);
}

int compare_two_dumps(const Arguments& arguments) {
  const TapDump a = read_tap_dump(paths(arguments.dump));
  const TapDump b = read_tap_dump(paths(arguments.against));
  const DumpReport report = compare_dumps(a, b, {.rel_l2 = arguments.max_rel_l2});
  print(arguments.json ? dump_report_json(report)
                       : dump_report_text(report, {.colour = stdout_has_colour()}));
  return verdict_exit_code(report.verdict);
}

int compare_engine(const Arguments& arguments) {
  const Oracle oracle = read_oracle(arguments.oracle);
  const CompareReport report = compare_with_oracle(oracle, arguments.engine);
  const TextStyle style{.colour = stdout_has_colour(), .verbose = arguments.verbose};
  print(arguments.json ? report_json(report, arguments.verbose)
                       : report_text(report, mixer_kinds(arguments.engine.model.string()), style));
  return verdict_exit_code(report.verdict);
}

int run(int argc, char** argv) {
  CLI::App app{"Compare the engine with an oracle, layer by layer and token by token",
               "lockstep compare"};
  Arguments arguments;
  add_options(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  arguments.engine.timeout = std::chrono::seconds(arguments.timeout_s);
  const bool dumps = !arguments.dump.empty() && !arguments.against.empty();
  const bool engine = !arguments.engine.model.empty() && !arguments.oracle.empty();
  if (dumps == engine) {
    fail_with(ExitCode::usage, "give --model and --oracle, or --dump and --against");
  }
  try {
    return dumps ? compare_two_dumps(arguments) : compare_engine(arguments);
  } catch (const Error& error) {
    if (arguments.json) print(error_json(error.what()));
    throw;
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-compare", [&] { return lockstep::run(argc, argv); });
}
