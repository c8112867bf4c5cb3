// lockstep bench gate: is one build slower than another?
#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/commands.h"
#include "bench/cpu/engine_bench.h"
#include "bench/gate/gate_run.h"
#include "engine/base/cli_checks.h"
#include "engine/base/error.h"
#include "engine/base/golden_folder.h"
#include "engine/base/progress.h"
#include "engine/base/table.h"
#include "engine/base/temp_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kResampled = 1000;  // gates on the noise that was measured
constexpr int kContextSlack = 64;

struct GateSettings {
  fs::path baseline;
  fs::path candidate;
  fs::path model;
  std::string backend = "cpu";
  int tp = 1;
  int n_threads = 0;  // 0: the engine's choice
  int n_tokens = 64;
  uint64_t seed = 1;
  double inject_percent = 0;
  bool self_test = false;
  int64_t n_gates = 2000;
  bool json = false;
};

std::vector<std::string> engine_argv(const GateSettings& settings, bool candidate,
                                     int64_t max_context) {
  const fs::path& folder = candidate ? settings.candidate : settings.baseline;
  std::vector<std::string> argv = {(folder / "lockstep-generate").string(),
                                   "--model=" + settings.model.string(),
                                   "--backend=" + settings.backend,
                                   "--precision=bf16",
                                   "--tp=" + std::to_string(settings.tp),
                                   "--slots=1",
                                   "--max-context=" + std::to_string(max_context)};
  if (settings.n_threads > 0) argv.push_back("--threads=" + std::to_string(settings.n_threads));
  return argv;
}

// Seconds of all prompts together: prefill, then decode. The first job warms up.
std::vector<double> seconds_of(const std::vector<EngineTiming>& timings) {
  std::vector<double> seconds(2);
  for (size_t i = 1; i < timings.size(); ++i) {
    seconds[0] += timings[i].prefill_s;
    seconds[1] += timings[i].decode_s;
  }
  return seconds;
}

PaceProcess engine_process(const GateSettings& settings, Progress& progress) {
  CpuBenchSettings prompts_of;
  prompts_of.golden = golden_folder();
  const std::vector<BenchPrompt> prompts = read_bench_prompts(prompts_of);
  int64_t longest = 0;
  for (const BenchPrompt& prompt : prompts) {
    longest = std::max<int64_t>(longest, std::ssize(prompt.ids));
  }
  const std::string jobs = engine_jobs(prompts, settings.n_tokens);
  const int64_t max_context = longest + settings.n_tokens + kContextSlack;
  return [=, &progress](bool candidate) {
    std::vector<double> seconds;
    try {
      const TempDir folder;
      seconds = seconds_of(
          start_engine(engine_argv(settings, candidate, max_context), jobs, folder.path()));
    } catch (const Error& error) {
      throw Error(error.what(), ExitCode::could_not_judge);  // a broken build is not a slow one
    }
    if (candidate) {
      for (double& value : seconds) value *= 1 + settings.inject_percent / 100;
    }
    progress.advance();
    return seconds;
  };
}

Json figure_json(const PaceFigure& figure) {
  Json quads = Json::array();
  for (const PaceQuad& quad : figure.quads) quads.push_back({{"a", quad.a}, {"b", quad.b}});
  return {{"name", figure.name},
          {"verdict", pace_name(figure.verdict)},
          {"change", figure.change()},
          {"quads", quads}};
}

// What this gate can do on the noise that it met: false alarms and power.
std::array<PaceCount, 2> on_this_noise(const PaceFigure& figure, const GateSettings& settings,
                                       PaceRule rule, size_t n_figures) {
  rule.alpha /= static_cast<double>(n_figures);
  const std::vector<double> differences = figure.differences();
  return {resample_gates(differences, 0, kResampled, settings.seed, rule),
          resample_gates(differences, rule.found, kResampled, settings.seed, rule)};
}

void print_race(const PaceRace& race, const GateSettings& settings, const PaceRule& rule) {
  Table table({{"figure"},
               {"verdict"},
               {"change", Align::right},
               {"quads", Align::right},
               {"false alarms here", Align::right},
               {fmt::format("+{:.0f} % found here", 100 * rule.found), Align::right}});
  for (const PaceFigure& figure : race.figures) {
    const auto [equal, slower] = on_this_noise(figure, settings, rule, race.figures.size());
    table.add_row({figure.name, pace_name(figure.verdict),
                   fmt::format("{:+.2f} %", 100 * figure.change()),
                   fmt::format("{}", figure.quads.size()),
                   fmt::format("{:.1f} %", 100 * equal.slower_share()),
                   fmt::format("{:.1f} %", 100 * slower.slower_share())});
  }
  table.print();
  fmt::print("{}\n", pace_name(race.verdict()));
}

void print_race_json(const PaceRace& race, const GateSettings& settings, const PaceRule& rule) {
  Json figures = Json::array();
  for (const PaceFigure& figure : race.figures) {
    const auto [equal, slower] = on_this_noise(figure, settings, rule, race.figures.size());
    Json json = figure_json(figure);
    json["false_alarms"] = equal.slower_share();
    json["power"] = slower.slower_share();
    figures.push_back(std::move(json));
  }
  fmt::print("{}\n", Json{{"format", "lockstep-bench-gate"},
                          {"version", 1},
                          {"baseline", settings.baseline.string()},
                          {"candidate", settings.candidate.string()},
                          {"backend", settings.backend},
                          {"verdict", pace_name(race.verdict())},
                          {"figures", figures}}
                         .dump(1));
}

int race_builds(GateSettings settings) {
  if (settings.baseline.empty() || settings.candidate.empty()) {
    fail_with(ExitCode::usage, "bench gate: name two folders of programs, or --self-test");
  }
  if (settings.model.empty()) settings.model = golden_folder() / "tiny-qwen3_5";
  const PaceRule rule;
  Progress progress("bench gate", static_cast<size_t>(4 * rule.looks.back() + 2), "processes");
  const PaceRace race =
      run_race({"prefill", "decode"}, engine_process(settings, progress), settings.seed, rule);
  progress.finish();
  if (settings.json) {
    print_race_json(race, settings, rule);
  } else {
    print_race(race, settings, rule);
  }
  if (race.verdict() == PaceVerdict::slower) return static_cast<int>(ExitCode::fail);
  if (race.verdict() != PaceVerdict::ambiguous) return 0;
  fail_with(ExitCode::mistrusted,
            "bench gate: {} quads did not tell whether {} is slower: run it on a quiet machine",
            rule.looks.back(), settings.candidate.string());
}

int test_itself(const GateSettings& settings) {
  const PaceRule rule;
  const std::vector<SelfTestRow> rows = self_test(settings.n_gates, settings.seed, rule);
  Table table({{"noise"},
               {"slowdown", Align::right},
               {"called slower", Align::right},
               {"95 % interval", Align::right},
               {"ambiguous", Align::right},
               {"quads", Align::right}});
  Json json = Json::array();
  for (const SelfTestRow& row : rows) {
    const PaceCount& count = row.count;
    const Interval interval = share_interval(count.n_slower, count.n_gates);
    table.add_row({row.noise, fmt::format("{:.1f} %", 100 * row.slowdown),
                   fmt::format("{:.2f} %", 100 * count.slower_share()),
                   fmt::format("{:.2f}-{:.2f} %", 100 * interval.low, 100 * interval.high),
                   fmt::format("{}", count.n_ambiguous), fmt::format("{:.1f}", count.mean_quads)});
    json.push_back({{"noise", row.noise},
                    {"slowdown", row.slowdown},
                    {"gates", count.n_gates},
                    {"slower", count.n_slower},
                    {"interval", {interval.low, interval.high}},
                    {"ambiguous", count.n_ambiguous},
                    {"quads", count.mean_quads}});
  }
  if (settings.json) {
    fmt::print("{}\n", json.dump(1));
  } else {
    table.print();
  }
  const std::string broken = broken_promise(rows, rule);
  if (broken.empty()) return 0;
  fail_with(ExitCode::fail, "bench gate: {}", broken);
}

}  // namespace

void add_gate_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("gate", "Is one build of the engine slower than another?");
  const auto settings = std::make_shared<GateSettings>();
  command->add_option("BASELINE", settings->baseline, "Folder of the programs to compare with");
  command->add_option("CANDIDATE", settings->candidate, "Folder of the programs to judge");
  command->add_option("--model", settings->model, "Checkpoint (default: the golden model)");
  command->add_option("--backend", settings->backend, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--tp", settings->tp, "Ranks")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  command->add_option("--threads", settings->n_threads, "Threads of a rank (0: its own choice)")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  command->add_option("--decode-tokens", settings->n_tokens, "Tokens of each answer")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--seed", settings->seed, "Of the orders in which the builds run")
      ->capture_default_str();
  command
      ->add_option("--inject-percent", settings->inject_percent,
                   "Count the candidate's times as this much longer: must be found")
      ->check(number_in(-50.0, 100.0));
  command->add_flag("--self-test", settings->self_test,
                    "Judge simulated builds whose difference is known, and say how often it errs");
  command->add_option("--gates", settings->n_gates, "Simulated gates a row of the self-test")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_flag("--json", settings->json, "Print JSON instead of a table");
  command->callback([settings, &exit_code] {
    exit_code = settings->self_test ? test_itself(*settings) : race_builds(*settings);
  });
}

}  // namespace lockstep
