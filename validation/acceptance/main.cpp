// lockstep acceptance: are as many drafts taken as in the baseline?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "engine/base/cli.h"
#include "engine/base/cli_checks.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "validation/acceptance/acceptance.h"
#include "validation/engine_run.h"
#include "validation/oracle.h"

namespace lockstep {
namespace {

struct Arguments {
  EngineOptions engine;
  std::string oracle;
  std::string against;
  std::string store;
  double margin_points = 5;
  int timeout_s = 1800;
  bool json = false;
};

void add_options(CLI::App& app, Arguments& arguments) {
  EngineOptions& engine = arguments.engine;
  engine.mtp = 3;
  app.add_option("--model", engine.model, "Checkpoint folder")->required();
  app.add_option("--oracle", arguments.oracle, "Prompts to run, and the default baseline")
      ->required();
  app.add_option("--against", arguments.against, "Store of an earlier run, instead of the oracle");
  app.add_option("--store", arguments.store, "Write this run's acceptance here");
  app.add_option("--margin", arguments.margin_points, "Equivalence margin in points")
      ->check(number_in(0.01, 50.0))
      ->capture_default_str();
  app.add_option("--mtp", engine.mtp, "Draft tokens a round")->check(CLI::Range(1, 5));
  app.add_option("--tp", engine.tp, "Ranks")->check(CLI::IsMember({1, 2}));
  app.add_option("--precision", engine.precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--kv", engine.kv, "KV cache type");
  app.add_option("--fault", engine.fault,
                 "Plant a fault of 'lockstep fault --list': NAME[@layer=L,rank=R,round=N]");
  app.add_option("--engine", engine.engine, "The engine to judge");
  app.add_option("--timeout", arguments.timeout_s, "Seconds that the engine may take")
      ->check(CLI::Range(1, 86400));
  app.add_flag("--json", arguments.json, "Print the report as JSON");
}

std::vector<PromptAcceptance> run_prompts(const Arguments& arguments,
                                          const std::vector<PromptAcceptance>& wanted) {
  std::vector<EngineJob> jobs;
  for (const OraclePrompt& prompt : read_oracle(arguments.oracle).prompts) {
    const bool asked = std::ranges::any_of(
        wanted, [&](const PromptAcceptance& one) { return one.name == prompt.name; });
    if (!asked) continue;
    EngineJob job;
    job.name = prompt.name;
    job.ids = prompt.ids;
    job.max_tokens = static_cast<int>(prompt.greedy.size());
    jobs.push_back(std::move(job));
  }
  std::vector<PromptAcceptance> run;
  for (const EngineResult& result : run_engine(arguments.engine, jobs)) {
    run.push_back({result.name, result.drafted, result.drafts_accepted});
  }
  return run;
}

int run(int argc, char** argv) {
  CLI::App app{"Drafts that are taken, against a baseline", "lockstep acceptance"};
  Arguments arguments;
  add_options(app, arguments);
  if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
  if (!arguments.store.empty()) require_writable("--store", arguments.store);
  arguments.engine.timeout = std::chrono::seconds(arguments.timeout_s);
  const std::vector<PromptAcceptance> baseline =
      read_acceptance(arguments.against.empty() ? arguments.oracle : arguments.against);
  const std::vector<PromptAcceptance> now = run_prompts(arguments, baseline);
  if (!arguments.store.empty()) write_file_atomically(arguments.store, store_acceptance(now));
  const AcceptanceReport report = judge_acceptance(now, baseline, arguments.margin_points / 100);
  fmt::print("{}", arguments.json ? acceptance_json(report) : acceptance_text(report));
  return static_cast<int>(exit_code_of(report.verdict));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-acceptance", [&] { return lockstep::run(argc, argv); });
}
