// lockstep bench ops: every CUDA route over the 27B shapes, beside what the card reads in the same
// run.
#include <cuda_runtime_api.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/commands.h"
#include "bench/cuda/attention_bench.h"
#include "bench/cuda/gdn_bench.h"
#include "bench/cuda/linear_bench.h"
#include "bench/cuda/rows_bench.h"
#include "engine/base/table.h"

namespace lockstep {
namespace {

#ifdef LOCKSTEP_KERNEL_MUTANTS
constexpr bool kMayAblate = true;
#else
constexpr bool kMayAblate = false;
#endif

// Kernels that can leave work out are in lockstep-bench-ablate alone.
void arm_ablation(const std::string& what) {
  if (what.empty()) return;
  const char* number = what == "math" ? "1001" : "1002";
  setenv("LOCKSTEP_KERNEL_MUTANT", number, 1);
  fmt::print("without {}: results are wrong, times show what the kernels wait for\n", what);
}

// Folders of engine/ops whose kernels a row times.
std::vector<std::string> folders_of(const bench_cuda::OpsRow& row) {
  static const std::vector<std::pair<std::string, std::vector<std::string>>> known = {
      {"GDN round", {"causal_conv", "gated_delta", "gated_rmsnorm", "gdn_gates"}},
      {"add + rmsnorm", {"rmsnorm"}},
      {"bias + gelu", {"bias_add", "gelu"}},
      {"heads + int8 cache", {"prepare_heads"}},
      {"prefill attention", {"attention"}},
      {"vision attention", {"vision_attention"}}};
  for (const auto& [start, folders] : known) {
    if (row.op.starts_with(start)) return folders;
  }
  return {row.op.substr(0, row.op.find(' '))};
}

void print_json(const bench_cuda::OpsRun& run) {
  nlohmann::json rows = nlohmann::json::array();
  for (const bench_cuda::OpsRow& row : run.rows) {
    rows.push_back({{"op", row.op},
                    {"folders", folders_of(row)},
                    {"case", row.what},
                    {"tokens", row.n_tokens},
                    {"bytes", row.bytes},
                    {"seconds", double{row.seconds}},
                    {"samples", row.seconds.samples()},
                    {"roof_bytes_per_s", row.roof_bytes_per_s},
                    {"flops", row.flops},
                    {"library_seconds", row.yardstick_seconds}});
  }
  const DeviceFacts& facts = run.device.facts();
  fmt::print("{}\n", nlohmann::json{{"device", facts.name},
                                    {"multiprocessors", facts.n_multiprocessors},
                                    {"read_bytes_per_s", run.read_bytes_per_s},
                                    {"update_bytes_per_s", run.update_bytes_per_s},
                                    {"rows", rows}}
                         .dump(1));
}

// Time of a half matrix over that of the whole one in the same run; empty for others.
std::string share_of_whole(const bench_cuda::OpsRun& run, const bench_cuda::OpsRow& half) {
  for (const bench_cuda::OpsRow& row : run.rows) {
    if (row.op == half.op && row.n_tokens == half.n_tokens && row.what + " half" == half.what) {
      return fmt::format("{:.2f}", half.seconds / row.seconds);
    }
  }
  return "";
}

void print_table(const bench_cuda::OpsRun& run) {
  const DeviceFacts& facts = run.device.facts();
  fmt::print("{}, {} multiprocessors, reads {:.0f} GB/s, updates {:.0f} GB/s\n", facts.name,
             facts.n_multiprocessors, run.read_bytes_per_s / 1e9, run.update_bytes_per_s / 1e9);
  Table table({{"op"},
               {"case"},
               {"T", Align::right},
               {"MB", Align::right},
               {"us", Align::right},
               {"GB/s", Align::right},
               {"of roof", Align::right},
               {"of whole", Align::right},
               {"TFLOP/s", Align::right},
               {"x library", Align::right}});
  for (const bench_cuda::OpsRow& row : run.rows) {
    const double rate = row.bytes / row.seconds;
    const double roof = row.roof_bytes_per_s > 0 ? row.roof_bytes_per_s : run.read_bytes_per_s;
    table.add_row({row.op, row.what, fmt::format("{}", row.n_tokens),
                   fmt::format("{:.1f}", row.bytes / 1e6), fmt::format("{:.2f}", row.seconds * 1e6),
                   fmt::format("{:.0f}", rate / 1e9), fmt::format("{:.0f} %", 100.0 * rate / roof),
                   share_of_whole(run, row),
                   row.flops == 0.0 ? "" : fmt::format("{:.1f}", row.flops / row.seconds / 1e12),
                   row.yardstick_seconds == 0.0
                       ? ""
                       : fmt::format("{:.2f}", row.yardstick_seconds / row.seconds)});
  }
  table.print();
}

int bench_ops(const bench_cuda::OpsSettings& settings) {
  arm_ablation(settings.ablate);
  const std::unique_ptr<Device> device = open_device(settings.device);
  const std::unique_ptr<Stream> stream = device->new_stream();
  bench_cuda::OpsRun run{settings, *device, *stream, 0.0, 0.0, {}};
  run.read_bytes_per_s = bench_cuda::measure_read(run);
  run.update_bytes_per_s = bench_cuda::measure_update(run);
  if (settings.wants("linear")) bench_cuda::run_linear(run);
  if (settings.wants("linear-chain")) bench_cuda::run_linear_chain(run);
  if (settings.wants("attention")) bench_cuda::run_attention(run);
  if (settings.wants("prefill-attention")) bench_cuda::run_prefill_attention(run);
  if (settings.wants("rows")) bench_cuda::run_rows(run);
  if (settings.wants("sample")) bench_cuda::run_sample(run);
  if (settings.wants("vision")) bench_cuda::run_vision(run);
  if (settings.wants("gdn")) bench_cuda::run_gdn(run);
  settings.json ? print_json(run) : print_table(run);
  return 0;
}

}  // namespace

void add_ops_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("ops", "CUDA kernels over the 27B shapes, cold caches");
  const auto settings = std::make_shared<bench_cuda::OpsSettings>();
  command->add_option("--device", settings->device, "cuda or cuda:N")->capture_default_str();
  command
      ->add_option("--ops", settings->ops,
                   "linear, linear-chain, attention, prefill-attention, gdn, rows, sample, vision")
      ->delimiter(',')
      ->check(CLI::IsMember({"linear", "linear-chain", "attention", "prefill-attention", "gdn",
                             "rows", "sample", "vision"}))
      ->capture_default_str();
  command->add_option("--codecs", settings->codecs, "Codecs of linear, with commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--tokens", settings->tokens, "Columns, with commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 8192))
      ->capture_default_str();
  command->add_flag("!--no-library", settings->library, "Do not time cuBLAS beside linear");
  command->add_option("--family", settings->family, "Kernels: auto, sm70 or sm80")
      ->check(CLI::IsMember({"auto", "sm70", "sm80"}))
      ->capture_default_str();
  command->add_option("--kv", settings->kv_types, "Types of the KV cache, with commas")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--segment", settings->segments.base, "Positions of the first segments")
      ->check(CLI::IsMember({64, 128, 256, 512, 1024, 2048, 4096}))
      ->capture_default_str();
  command
      ->add_option("--segment-levels", settings->segments.n_levels,
                   "How often segments double, and once")
      ->check(CLI::Range(1, 8))
      ->capture_default_str();
  if (kMayAblate) {
    command->add_option("--ablate", settings->ablate, "Leave out: math or loads")
        ->check(CLI::IsMember({"math", "loads"}));
  }
  command->add_option("--replays", settings->n_replays, "Timed replays of each graph")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", settings->json, "Print JSON instead of a table");
  command->callback([settings, &exit_code] { exit_code = bench_ops(*settings); });
}

}  // namespace lockstep
