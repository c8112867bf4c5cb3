// lockstep bench round: decode rounds of the engine on a card with a synthetic 27B model, beside
// what the card reads in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
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
#include "engine/device/cuda/op_clock.h"
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
  bool ops = true;
  bool json = false;
};

// What a kind of op takes of a round, without the events between ops.
struct OpRow {
  std::string op;
  double n_calls;  // a round
  double seconds;  // a call
};

struct OpTable {
  int n_drafts;
  int64_t context;
  double event_seconds;  // that an interval of no op takes
  std::vector<OpRow> rows;
};

struct RoundRow {
  int n_drafts;
  int64_t context;
  int64_t n_rounds;
  double seconds;  // of one round
  double floor_seconds;
};

std::string jobs_text(const RoundSettings& settings, const std::vector<int64_t>& contexts) {
  std::string text;
  const std::vector<int32_t> ids(kPromptTokens, 1000);
  for (const int64_t context : contexts) {
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

std::vector<std::string> engine_command(const RoundSettings& settings, int n_drafts,
                                        bool time_ops) {
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
  if (time_ops) argv.push_back("--time-ops");
  return argv;
}

// A timing for the warm-up and for the timed job of each context.
std::vector<EngineTiming> run_engine(const RoundSettings& settings, int n_drafts,
                                     const std::vector<int64_t>& contexts, bool time_ops,
                                     const TempDir& folder) {
  const std::vector<EngineTiming> timings =
      start_engine(engine_command(settings, n_drafts, time_ops), jobs_text(settings, contexts),
                   folder.path(), kEngineDeadline);
  if (timings.size() != 2 * contexts.size()) {
    fail("lockstep-generate: {} results for {} jobs", timings.size(), 2 * contexts.size());
  }
  return timings;
}

// A start of its own: events between ops slow the rounds.
OpTable time_ops(const RoundSettings& settings, int n_drafts, int64_t context) {
  const TempDir folder;
  double n_rounds = 0.0;
  for (const EngineTiming& timing : run_engine(settings, n_drafts, {context}, true, folder)) {
    n_rounds += static_cast<double>(timing.n_rounds);
  }
  const Json times = Json::parse(read_text_file(folder.path() / "out" / "op-times.json"));
  OpTable table{n_drafts, context, 0.0, {}};
  for (const Json& time : times) {
    const auto n = time["n"].get<double>();
    const double seconds = time["seconds"].get<double>() / n;
    if (time["op"] == kNoOp) {
      table.event_seconds = seconds;
    } else {
      table.rows.push_back({time["op"], n / n_rounds, seconds});
    }
  }
  for (OpRow& row : table.rows) row.seconds = std::max(row.seconds - table.event_seconds, 0.0);
  std::sort(table.rows.begin(), table.rows.end(), [](const OpRow& a, const OpRow& b) {
    return a.n_calls * a.seconds > b.n_calls * b.seconds;
  });
  return table;
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

void print_ops(const OpTable& ops) {
  double total = 0.0;
  for (const OpRow& row : ops.rows) total += row.n_calls * row.seconds;
  Table table({{"op"},
               {"calls a round", Align::right},
               {"us a call", Align::right},
               {"ms a round", Align::right},
               {"share", Align::right}});
  for (const OpRow& row : ops.rows) {
    const double seconds = row.n_calls * row.seconds;
    table.add_row({row.op, fmt::format("{:.1f}", row.n_calls),
                   fmt::format("{:.2f}", row.seconds * 1e6), fmt::format("{:.3f}", seconds * 1e3),
                   fmt::format("{:.1f} %", 100.0 * seconds / total)});
  }
  fmt::print(
      "drafts {}, context {}: {:.3f} ms a round of ops one by one, less {:.2f} us of events each\n",
      ops.n_drafts, ops.context, total * 1e3, ops.event_seconds * 1e6);
  table.print();
}

Json json_of(const OpTable& ops) {
  Json json = {{"drafts", ops.n_drafts},
               {"context", ops.context},
               {"event_seconds", ops.event_seconds},
               {"ops", Json::array()}};
  for (const OpRow& row : ops.rows) {
    json["ops"].push_back(
        {{"op", row.op}, {"calls_a_round", row.n_calls}, {"seconds", row.seconds}});
  }
  return json;
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

void print_json(const RoundSettings& settings, const std::vector<RoundRow>& rows,
                const std::vector<OpTable>& tables, double read_bytes_per_s) {
  Json out = {{"model", settings.model},
              {"tp", settings.n_ranks},
              {"kv", settings.kv},
              {"read_bytes_per_s", read_bytes_per_s}};
  for (const RoundRow& row : rows) {
    out["rounds"].push_back({{"drafts", row.n_drafts},
                             {"context", row.context},
                             {"n", row.n_rounds},
                             {"seconds", row.seconds},
                             {"floor_seconds", row.floor_seconds}});
  }
  for (const OpTable& table : tables) out["op_times"].push_back(json_of(table));
  fmt::print("{}\n", out.dump(1));
}

int bench_round(const RoundSettings& settings) {
  const double read_bytes_per_s = read_rate(settings.devices);
  std::vector<RoundRow> rows;
  std::vector<OpTable> tables;
  for (const int n_drafts : settings.drafts) {
    const TempDir folder;
    const std::vector<EngineTiming> timings =
        run_engine(settings, n_drafts, settings.contexts, false, folder);
    for (size_t i = 0; i < settings.contexts.size(); ++i) {
      const EngineTiming& timing = timings[2 * i + 1];
      rows.push_back({n_drafts, settings.contexts[i], timing.n_rounds,
                      timing.decode_s / static_cast<double>(timing.n_rounds),
                      floor_bytes(settings, n_drafts, settings.contexts[i]) / read_bytes_per_s});
    }
    if (!settings.ops) continue;
    for (const int64_t context : settings.contexts) {
      tables.push_back(time_ops(settings, n_drafts, context));
    }
  }
  if (settings.json) {
    print_json(settings, rows, tables, read_bytes_per_s);
    return 0;
  }
  print_rows(settings, rows, read_bytes_per_s);
  for (const OpTable& table : tables) print_ops(table);
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
  command
      ->add_option("--ops", settings->ops,
                   "on: also what each kind of op takes, in a start of its own for each context")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, bool>{{"on", true}, {"off", false}}))
      ->default_str("on");
  command->add_flag("--json", settings->json, "Print JSON instead of tables");
  command->callback([settings, &exit_code] { exit_code = bench_round(*settings); });
}

}  // namespace lockstep
