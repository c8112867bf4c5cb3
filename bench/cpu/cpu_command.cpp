// lockstep bench cpu: roofs, ops and the engine in one run.
#include <stdlib.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "bench/commands.h"
#include "bench/cpu/engine_bench.h"
#include "bench/cpu/op_bench.h"
#include "bench/cpu/results.h"
#include "bench/cpu/roof_table.h"
#include "bench/cpu/roofs.h"
#include "bench/cpu/settings.h"
#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "engine/ops/common/cpu_target.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargeBufferBytes = int64_t{256} << 20;

using Pools = std::map<int, std::unique_ptr<ThreadPool>>;

// A pool for every number of threads that something runs with. Spinning is right only while every
// thread has a core, as in the engine.
Pools make_pools(const CpuBenchSettings& settings, int n_cores) {
  std::set<int> counts(settings.threads.begin(), settings.threads.end());
  if (settings.wants("engine")) counts.insert(2);
  Pools pools;
  for (const int n : counts) pools[n] = std::make_unique<ThreadPool>(n, n <= n_cores);
  return pools;
}

void run_roofs(const Pools& pools, const WeightBytes& weights, RoofTable& roofs, Results& results) {
  for (const auto& [n_threads, pool] : pools) {
    Series key;
    key.section = "roof";
    key.n_threads = n_threads;
    key.unit = "GFLOP/s";
    for (const std::string& target : available_cpu_targets()) {
      key.name = "FMA " + target;
      const bool chosen = target == current_cpu_target();
      results.add(key, (chosen ? roofs.fma(*pool) : fma_flops_per_s(target, *pool)) / 1e9);
    }
    key.unit = "GB/s";
    key.name = fmt::format("read {} (weights of a round)",
                           human_bytes(static_cast<double>(weights.round)));
    results.add(key, roofs.read(weights.round, *pool) / 1e9);
    key.name = fmt::format("read {}", human_bytes(static_cast<double>(kLargeBufferBytes)));
    results.add(key, roofs.read(kLargeBufferBytes, *pool) / 1e9);
  }
}

void run_once(const CpuBenchSettings& settings, const ModelConfig& config,
              const WeightBytes& weights, const Pools& pools, Progress& progress,
              Results& results) {
  RoofTable roofs(current_cpu_target());
  run_roofs(pools, weights, roofs, results);
  progress.advance();
  if (settings.wants("ops")) {
    for (const int n_threads : settings.threads) {
      run_op_bench(settings, config, *pools.at(n_threads), roofs, results);
      progress.advance();
    }
  }
  if (!settings.wants("engine")) return;
  const std::vector<BenchPrompt> prompts = read_bench_prompts(settings);
  for (const EngineSetup& setup : engine_setups(settings)) {
    run_engine_bench(settings, setup, prompts, config, weights,
                     *pools.at(setup.n_ranks * setup.n_threads), roofs, results);
    progress.advance();
  }
}

void check_codecs(const CpuBenchSettings& settings) {
  for (const std::string& name : settings.codecs) {
    bool known = false;
    for (int codec = 0; codec <= static_cast<int>(Codec::int4); ++codec) {
      known = known || codec_name(static_cast<Codec>(codec)) == name;
    }
    if (!known) fail("--codecs {}: no such codec; 'lockstep bench cpu --help' lists them", name);
  }
}

int bench_cpu(CpuBenchSettings settings) {
  if (settings.model.empty()) settings.model = settings.golden / "tiny-qwen3_5";
  check_codecs(settings);
  select_cpu_target(settings.cpu_target);
  const ModelConfig config = load_model_config(settings.model);
  BenchContext context;
  context.model = settings.model.string();
  context.cpu_target = current_cpu_target();
  context.n_cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (getloadavg(&context.load, 1) != 1) context.load = 0;
  context.n_runs = settings.n_runs;
  context.machine = probe::read_machine(settings.machine);
  context.weights = weight_bytes(Checkpoint(settings.model), config);
  const Pools pools = make_pools(settings, context.n_cores);
  const size_t n_steps = 1 + (settings.wants("ops") ? settings.threads.size() : 0) +
                         (settings.wants("engine") ? engine_setups(settings).size() : 0);
  Progress progress("bench cpu", n_steps * static_cast<size_t>(settings.n_runs), "steps");
  Results results;
  for (int run = 0; run < settings.n_runs; ++run) {
    run_once(settings, config, context.weights, pools, progress, results);
  }
  progress.finish();
  if (settings.json) {
    fmt::print("{}\n", results_json(context, results));
  } else {
    print_results(context, results);
  }
  return 0;
}

}  // namespace

void add_cpu_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("cpu", "Roofs, ops and the engine on this CPU, in one run");
  const auto settings = std::make_shared<CpuBenchSettings>();
  command->add_option("--golden", settings->golden, "Folder with the golden model and its oracle")
      ->capture_default_str();
  command->add_option("--model", settings->model, "Checkpoint (default: the golden model)");
  command->add_option("--engine", settings->generate, "Program to time instead of our own");
  command->add_option("--cpu-target", settings->cpu_target, "auto, avx2 or avx512")
      ->capture_default_str();
  command->add_option("--kv", settings->kv, "KV cache type of the engine: bf16, fp16 or int8")
      ->check(CLI::IsMember({"bf16", "fp16", "int8"}))
      ->capture_default_str();
  command->add_option("--threads", settings->threads, "Numbers of threads, with commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command
      ->add_option("--codecs", settings->codecs,
                   "Codecs of the linear op, with commas (default: all): f32, bf16, f16, fp8, "
                   "fp8_block, nvfp4, int4")
      ->delimiter(',');
  command->add_option("--prompts", settings->prompts, "Prompts of the oracle, with commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--sections", settings->sections, "ops, engine or both, with commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"ops", "engine"}))
      ->capture_default_str();
  command->add_option("--runs", settings->n_runs, "Times that everything is measured")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--decode-tokens", settings->n_decode_tokens, "Tokens to generate")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command
      ->add_option("--max-matrix-bytes", settings->max_matrix_bytes,
                   "Larger matrices are measured by their first rows")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 34))
      ->capture_default_str();
  command->add_option(
      "--machine", settings->machine,
      "Profile of this machine, from lockstep probe --profile: stored, doubts shown");
  command->add_flag("--json", settings->json, "Print JSON instead of tables");
  command->callback([settings, &exit_code] { exit_code = bench_cpu(*settings); });
}

}  // namespace lockstep
