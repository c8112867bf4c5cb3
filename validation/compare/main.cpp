// lockstep compare: layer by layer against the oracle, or one dump against another.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "engine/base/cli.h"
#include "engine/base/cli_checks.h"
#include "engine/base/error.h"
#include "validation/compare/compare.h"
#include "validation/compare/dump_compare.h"
#include "validation/compare/foreign_dump.h"
#include "validation/compare/isolate.h"
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
  std::string names;
  std::string against_names;
  std::vector<std::string> prompts;
  bool isolate = false;
  double max_rel_l2 = tolerance::kFp32RelL2;
  int timeout_s = 1800;
  bool json = false;
  bool verbose = false;
};

// A flag that says nothing in a mode is refused there.
void bind_to_modes(CLI::App& app) {
  CLI::Option* dump = app.get_option("--dump");
  CLI::Option* against = app.get_option("--against");
  app.get_option("--names")->needs(dump);
  against->needs(dump);
  for (const char* name : {"--against-names", "--max-rel-l2"}) app.get_option(name)->needs(against);
  for (const char* name : {"--prompt", "--precision"}) app.get_option(name)->excludes(against);
  for (const char* name :
       {"--model", "--tp", "--backend", "--devices", "--share-device", "--kernels",
        "--prefill-grid", "--fault", "--mtp", "--transport", "--kv", "--shards", "--slots",
        "--engine", "--timeout", "--isolate", "--verbose"}) {
    app.get_option(name)->excludes(dump);
  }
}

void add_options(CLI::App& app, Arguments& arguments) {
  EngineOptions& engine = arguments.engine;
  app.add_option("--model", engine.model, "Checkpoint folder");
  app.add_option("--oracle", arguments.oracle, "Path of the oracle without .json / .safetensors");
  app.add_option("--tp", engine.tp, "Ranks")->check(CLI::IsMember({1, 2}));
  app.add_option("--precision", engine.precision, "fp32 (every bit counts) or bf16 (as served)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--backend", engine.backend, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--devices", engine.devices, "Cards of the ranks: index, UUID or PCI id");
  app.add_flag("--share-device", engine.share_device, "Both ranks may run on one card");
  app.add_option("--kernels", engine.kernels, "sm70: those that a V100 gets, on a newer card");
  app.add_option("--prefill-grid", engine.prefill_grid, "Prefill in pieces of N positions")
      ->check(CLI::PositiveNumber);
  app.add_option("--fault", engine.fault,
                 "Plant a fault of 'lockstep fault --list': NAME[@layer=L,rank=R,round=N]");
  app.add_option("--mtp", engine.mtp, "Draft tokens a round")->check(CLI::Range(0, 5));
  app.add_option("--transport", engine.transport, "Way between two cards");
  app.add_option("--kv", engine.kv, "KV cache type");
  app.add_option("--shards", engine.shards, "Folder of shard files");
  app.add_option("--slots", engine.slots, "Requests that the engine runs together")
      ->check(CLI::Range(1, 8));
  app.add_option("--engine", engine.engine,
                 "The engine to judge (default: lockstep-generate beside this program)");
  app.add_option("--timeout", arguments.timeout_s, "Seconds that the engine may take")
      ->check(CLI::Range(1, 86400));
  app.add_option("--dump", arguments.dump,
                 "Compare this dump (.safetensors, .npy or a folder; one a rank) ...");
  app.add_option("--against", arguments.against, "... with this one, instead of running an engine");
  app.add_option("--names", arguments.names, "File that maps the names of --dump to taps");
  app.add_option("--against-names", arguments.against_names, "The same for --against");
  app.add_option("--prompt", arguments.prompts,
                 "Prompts of the oracle to judge (default: all; exactly one with --dump)");
  app.add_flag("--isolate", arguments.isolate,
               "Find the first wrong operation: run each on the oracle's input");
  app.add_option("--max-rel-l2", arguments.max_rel_l2, "Limit for --dump with --against")
      ->check(number_in(0.0, 1e6))
      ->capture_default_str();
  app.add_flag("--json", arguments.json, "Print the report as JSON");
  app.add_flag("--verbose", arguments.verbose, "Add every tap (JSON) or the worst prompt's layers");
  bind_to_modes(app);
}

void print(const std::string& text) {
  fmt::print("{}", text);
}

TapDump read_dump(const std::vector<std::string>& texts, const NameMap* names) {
  const std::vector<std::filesystem::path> paths(texts.begin(), texts.end());
  return names == nullptr ? read_named_dump(paths) : read_foreign_dump(paths, *names);
}

std::optional<NameMap> read_map(const std::string& path) {
  return path.empty() ? std::nullopt : std::optional(read_name_map(path));
}

int print_dump_report(const DumpReport& report, bool json) {
  print(json ? dump_report_json(report)
             : dump_report_text(report, {.colour = stdout_has_colour()}));
  return verdict_exit_code(report.verdict);
}

int compare_two_dumps(const Arguments& arguments) {
  const std::optional<NameMap> names = read_map(arguments.names);
  const std::optional<NameMap> against = read_map(arguments.against_names);
  const TapDump a = read_dump(arguments.dump, names ? &*names : nullptr);
  const TapDump b = read_dump(arguments.against, against ? &*against : nullptr);
  return print_dump_report(compare_dumps(a, b, {.rel_l2 = arguments.max_rel_l2}), arguments.json);
}

// The oracle with the prompts asked for alone.
Oracle chosen_oracle(const Arguments& arguments) {
  Oracle oracle = read_oracle(arguments.oracle);
  for (const std::string& name : arguments.prompts) {
    const bool known = std::ranges::any_of(
        oracle.prompts, [&](const OraclePrompt& prompt) { return prompt.name == name; });
    if (!known) fail_with(ExitCode::usage, "--prompt {}: the oracle has no such prompt", name);
  }
  if (arguments.prompts.empty()) return oracle;
  std::erase_if(oracle.prompts, [&](const OraclePrompt& prompt) {
    return std::ranges::find(arguments.prompts, prompt.name) == arguments.prompts.end();
  });
  return oracle;
}

int judge_foreign_dump(const Arguments& arguments) {
  if (arguments.prompts.size() != 1) {
    fail_with(ExitCode::usage, "--dump with --oracle needs one --prompt NAME");
  }
  const Oracle oracle = chosen_oracle(arguments);
  const std::optional<NameMap> names = read_map(arguments.names);
  const TapDump dump = read_dump(arguments.dump, names ? &*names : nullptr);
  const std::vector<std::string> only = names ? names->only : std::vector<std::string>();
  const Precision precision = parse_precision(arguments.engine.precision);
  return print_dump_report(judge_dump(oracle.prompts[0], dump, only, precision), arguments.json);
}

int compare_engine(const Arguments& arguments) {
  const Oracle oracle = chosen_oracle(arguments);
  const TextStyle style{.colour = stdout_has_colour(), .verbose = arguments.verbose};
  if (arguments.isolate) {
    const IsolationReport report = isolate(oracle, arguments.engine);
    print(arguments.json ? isolation_json(report)
                         : isolation_text(report, style.colour, arguments.verbose));
    return verdict_exit_code(report.verdict);
  }
  const CompareReport report = compare_with_oracle(oracle, arguments.engine);
  print(arguments.json ? report_json(report, arguments.verbose)
                       : report_text(report, mixer_kinds(arguments.engine.model.string()), style));
  return verdict_exit_code(report.verdict);
}

int run(int argc, char** argv) {
  CLI::App app{
      "Compare the engine or a dump with an oracle, or two dumps, layer by layer and token by "
      "token",
      "lockstep compare"};
  Arguments arguments;
  add_options(app, arguments);
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  arguments.engine.timeout = std::chrono::seconds(arguments.timeout_s);
  const bool dump = !arguments.dump.empty();
  const bool two_dumps = dump && !arguments.against.empty() && arguments.oracle.empty();
  const bool foreign = dump && arguments.against.empty() && !arguments.oracle.empty();
  const bool engine = !dump && !arguments.engine.model.empty() && !arguments.oracle.empty();
  if (int{two_dumps} + int{foreign} + int{engine} != 1) {
    fail_with(ExitCode::usage,
              "give --model and --oracle, or --dump and --against, or --dump and --oracle");
  }
  try {
    if (foreign) return judge_foreign_dump(arguments);
    return two_dumps ? compare_two_dumps(arguments) : compare_engine(arguments);
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
