// lockstep bench round: decode rounds of the engine on a card with a synthetic 27B model, beside
// what the card reads in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/commands.h"
#include "bench/cpu/engine_bench.h"
#include "bench/cuda/linear_bench.h"
#include "bench/work.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/process.h"
#include "engine/base/table.h"
#include "engine/base/temp_dir.h"
#include "engine/model/model_source.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::minutes kEngineDeadline{20};
constexpr int kPromptTokens = 8;
constexpr int kWarmUpTokens = 9;
constexpr double kTarget = 1.4;  // of the floor: the design's

struct RoundSettings {
  std::string model = "synth:qwen3.8-27b";
  std::string kv = "int8";
  std::vector<int64_t> contexts = {8192, 186368};
  std::vector<int> drafts = {0, 3};
  int n_ranks = 1;
  std::string devices;
  int n_rounds = 48;
  bool time_ops = false;
  bool json = false;
};

struct RoundRow {
  int n_drafts;
  int64_t context;
  int64_t n_rounds;
  double seconds;  // of one round
  double floor_seconds;
};

std::string jobs_text(const RoundSettings& settings) {
  std::string text;
  const std::vector<int32_t> ids(kPromptTokens, 1000);
  for (const int64_t context : settings.contexts) {
    for (const int n_tokens : {kWarmUpTokens, settings.n_rounds + 1}) {
      const Json job = {{"name", fmt::format("{}-{}", context, n_tokens)},
                        {"ids", ids},
                        {"assumed_context", context},
                        {"max_tokens", n_tokens},
                        {"temperature", 0.0},
                        {"ignore_eos", true}};
      text += job.dump() + "\n";
    }
  }
  return text;
}

std::vector<std::string> engine_command(const RoundSettings& settings, int n_drafts) {
  const int64_t longest = *std::max_element(settings.contexts.begin(), settings.contexts.end());
  std::vector<std::string> argv = {
      sibling_program("lockstep-generate").string(),
      "--model=" + settings.model,
      "--backend=cuda",
      fmt::format("--tp={}", settings.n_ranks),
      fmt::format("--mtp={}", n_drafts),
      "--kv=" + settings.kv,
      "--slots=1",
      "--prefix-cache=0",
      fmt::format("--max-context={}", longest + kPromptTokens + settings.n_rounds + 16)};
  if (!settings.devices.empty()) argv.push_back("--devices=" + settings.devices);
  if (settings.time_ops) argv.push_back("--time-ops");
  return argv;
}

struct EngineRun {
  std::vector<EngineTiming> timings;  // one a job
  Json op_times = Json::array();
};

EngineRun run_engine(const RoundSettings& settings, int n_drafts) {
  const TempDir folder;
  EngineRun run;
  run.timings = start_engine(engine_command(settings, n_drafts), jobs_text(settings), folder.path(),
                             kEngineDeadline);
  if (run.timings.size() != 2 * settings.contexts.size()) {
    fail("lockstep-generate: {} results for {} jobs", run.timings.size(),
         2 * settings.contexts.size());
  }
  if (settings.time_ops) {
    run.op_times = Json::parse(read_text_file(folder.path() / "out" / "op-times.json"));
  }
  return run;
}

// What a rank must read for one round: its part of weights, K and V, states.
double floor_bytes(const RoundSettings& settings, int n_drafts, int64_t context) {
  const ModelSource source = open_model_source(settings.model, "", settings.n_ranks, 0);
  ModelConfig config = source.config;
  const WeightBytes weights = weight_bytes(*source.checkpoint, config);
  config.n_kv_heads /= settings.n_ranks;
  config.gdn.n_v_heads /= settings.n_ranks;
  const KvType kv = settings.kv == "int8"   ? KvType::int8
                    : settings.kv == "fp16" ? KvType::fp16
                                            : KvType::bf16;
  return static_cast<double>(decode_bytes(config, weights, {1, n_drafts, context, 0, kv}));
}

double read_rate(const std::string& devices) {
  const std::string card = devices.substr(0, devices.find(','));
  const bool index = !card.empty() && card.find_first_not_of("0123456789") == std::string::npos;
  const std::unique_ptr<Device> device = open_device(index ? "cuda:" + card : "cuda");
  const std::unique_ptr<Stream> stream = device->new_stream();
  const bench_cuda::OpsSettings none;
  bench_cuda::OpsRun run{none, *device, *stream, 0.0, 0.0, {}};
  return bench_cuda::measure_read(run);
}

void print_op_times(const Json& times, int n_drafts) {
  double total = 0.0;
  for (const Json& time : times) total += time["seconds"].get<double>();
  Table table({{"op, all rounds"},
               {"ms", Align::right},
               {"calls", Align::right},
               {"us a call", Align::right},
               {"share", Align::right}});
  for (const Json& time : times) {
    const auto seconds = time["seconds"].get<double>();
    const auto n = time["n"].get<int64_t>();
    table.add_row({time["op"], fmt::format("{:.2f}", seconds * 1e3), fmt::format("{}", n),
                   fmt::format("{:.2f}", seconds * 1e6 / static_cast<double>(n)),
                   fmt::format("{:.1f} %", 100.0 * seconds / total)});
  }
  fmt::print("drafts {}, {:.2f} ms in all\n", n_drafts, total * 1e3);
  table.print();
}

void print_rows(const RoundSettings& settings, const std::vector<RoundRow>& rows,
                double read_bytes_per_s) {
  fmt::print("{}, --tp {}, KV {}, reads {:.0f} GB/s; floor: bytes of a rank's round at that rate\n",
             settings.model, settings.n_ranks, settings.kv, read_bytes_per_s / 1e9);
  Table table({{"drafts", Align::right},
               {"context", Align::right},
               {"rounds", Align::right},
               {"ms a round", Align::right},
               {"floor ms", Align::right},
               {"x floor", Align::right},
               {"target", Align::right}});
  for (const RoundRow& row : rows) {
    table.add_row({fmt::format("{}", row.n_drafts), fmt::format("{}", row.context),
                   fmt::format("{}", row.n_rounds), fmt::format("{:.3f}", row.seconds * 1e3),
                   fmt::format("{:.3f}", row.floor_seconds * 1e3),
                   fmt::format("{:.2f}", row.seconds / row.floor_seconds),
                   fmt::format("{:.1f}", kTarget)});
  }
  table.print();
}

int bench_round(const RoundSettings& settings) {
  const double read_bytes_per_s = read_rate(settings.devices);
  std::vector<RoundRow> rows;
  Json op_times = Json::object();
  for (const int n_drafts : settings.drafts) {
    const EngineRun run = run_engine(settings, n_drafts);
    for (size_t i = 0; i < settings.contexts.size(); ++i) {
      const EngineTiming& timing = run.timings[2 * i + 1];
      rows.push_back({n_drafts, settings.contexts[i], timing.n_rounds,
                      timing.decode_s / static_cast<double>(timing.n_rounds),
                      floor_bytes(settings, n_drafts, settings.contexts[i]) / read_bytes_per_s});
    }
    op_times[std::to_string(n_drafts)] = run.op_times;
    if (settings.time_ops && !settings.json) print_op_times(run.op_times, n_drafts);
  }
  if (!settings.json) {
    print_rows(settings, rows, read_bytes_per_s);
    return 0;
  }
  Json out = {{"model", settings.model},
              {"tp", settings.n_ranks},
              {"kv", settings.kv},
              {"read_bytes_per_s", read_bytes_per_s},
              {"op_times", op_times}};
  for (const RoundRow& row : rows) {
    out["rounds"].push_back({{"drafts", row.n_drafts},
                             {"context", row.context},
                             {"n", row.n_rounds},
                             {"seconds", row.seconds},
                             {"floor_seconds", row.floor_seconds}});
  }
  fmt::print("{}\n", out.dump(1));
  return 0;
}

}  // namespace

void add_round_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("round", "Decode rounds of the engine on a card, synthetic 27B model");
  const auto settings = std::make_shared<RoundSettings>();
  command->add_option("--model", settings->model, "Checkpoint or synth:GEOMETRY[:FORMAT[:SEED]]")
      ->capture_default_str();
  command->add_option("--kv", settings->kv, "KV cache type: bf16, fp16 or int8")
      ->check(CLI::IsMember({"bf16", "fp16", "int8"}))
      ->capture_default_str();
  command
      ->add_option("--contexts", settings->contexts,
                   "Positions before the first round, multiples of 512, with commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--drafts", settings->drafts, "Drafts a round, with commas")
      ->delimiter(',')
      ->check(CLI::Range(0, 5))
      ->capture_default_str();
  command->add_option("--tp", settings->n_ranks, "Ranks: 1 or 2")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  command->add_option("--devices", settings->devices, "Cards of the ranks, with a comma");
  command->add_option("--rounds", settings->n_rounds, "Tokens to generate at each context")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_flag("--time-ops", settings->time_ops,
                    "Also what each kind of op takes, of all rounds; slows them");
  command->add_flag("--json", settings->json, "Print JSON instead of tables");
  command->callback([settings, &exit_code] { exit_code = bench_round(*settings); });
}

}  // namespace lockstep
