#include "engine/rank/run_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "engine/base/cli_checks.h"
#include "engine/base/error.h"
#include "engine/rank/limits.h"

namespace lockstep {

namespace {

const CLI::Range kBytes(int64_t{0}, int64_t{1} << 50);
const CLI::Range kPositions(int64_t{0}, int64_t{1} << 40);

// "auto" is 0. No config may claim more positions than kMaxPositions.
std::string positions_or_auto(std::string& text) {
  if (text == "auto") {
    text = "0";
    return "";
  }
  constexpr int64_t kMaxPositions = int64_t{1} << 24;
  int64_t positions = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, positions);
  const bool number = !text.empty() && error == std::errc() && stop == end;
  if (number && positions >= 1 && positions <= kMaxPositions) return "";
  return fmt::format("'{}': say auto or a number of positions from 1 to {}", text, kMaxPositions);
}

// Over what each request says for itself.
void add_request_options(CLI::App& app, RunFlags& flags) {
  app.add_option("--max-tokens", flags.max_tokens, "Tokens to generate")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app.add_option("--temperature", flags.temperature, "0 is greedy")->check(number_in(0.0, 100.0));
  app.add_option("--seed", flags.seed, "Seed of sampling");
  app.add_flag("--ignore-eos", flags.ignore_eos, "Run on through end-of-turn");
}

}  // namespace

void add_run_options(CLI::App& app, RunFlags& flags) {
  app.add_option("--model", flags.model_dir, "Folder with the checkpoint")->required();
  app.add_option("--shards", flags.shards_dir, "Folder with shard files made by 'weights shard'");
  app.add_option("--tp", flags.n_ranks, "Ranks: 1 or 2")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  app.add_option("--precision", flags.precision, "bf16, or fp32 as reference")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--backend", flags.backend, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--devices", flags.devices,
                 "Cards of the ranks, with a comma: index, UUID or PCI id (default: the first)");
  app.add_flag("--share-device", flags.share_device, "Both ranks may run on one card");
  app.add_option("--kernels", flags.kernels,
                 "auto: those of the card, or sm70: those that a V100 gets, on a newer card")
      ->check(CLI::IsMember({"auto", "sm70"}))
      ->capture_default_str();
  app.add_option("--cuda-graphs", flags.cuda_graphs,
                 "on, or off: a card's decode rounds op by op; the text is the same")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_flag(
      "--time-ops", flags.time_ops,
      "Write what each kind of op takes of a card's decode rounds to op-times.json; slower");
  app.add_option("--transport", flags.transport,
                 "Between two cards: auto (the fastest), device, host, nccl or mailbox")
      ->check(CLI::IsMember({"auto", "device", "host", "nccl", "mailbox"}))
      ->capture_default_str();
  app.add_option("--kv", flags.kv, "KV cache type: bf16 (default), fp16, int8; fp32 in fp32")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "int8"}));
  app.add_option("--mtp", flags.n_drafts, "Drafts per round; the text is the same for all")
      ->check(CLI::Range(0, kMaxDrafts))
      ->capture_default_str();
  app.add_option("--draft-window", flags.draft_window,
                 "Drafts see at least this many last positions (0: all)")
      ->check(kPositions);
  app.add_option(
      "--draft-vocab", flags.draft_vocab,
      "Drafts come from the tokens of this file, or from this many first vocabulary rows "
      "(0: all)");
  app.add_option("--slots", flags.n_slots, "Requests that run together")
      ->check(CLI::Range(1, kMaxSlots))
      ->capture_default_str();
  app.add_option("--prefill-grid", flags.prefill_grid,
                 "Prefill chunks end at multiples of this many positions")
      ->capture_default_str();
  app.add_option("--max-context", flags.max_context,
                 "Positions per slot; auto: the model's, or what fits into --device-memory")
      ->transform(CLI::Validator(positions_or_auto, ""))
      ->default_str("auto");
  app.add_option("--device-memory", flags.device_memory,
                 "Bytes that a rank may plan to use (0: no cap)")
      ->check(kBytes);
  app.add_option("--prefix-cache", flags.prefix_cache_bytes,
                 "Bytes of prefix snapshots a rank may keep (0: off)")
      ->check(kBytes)
      ->capture_default_str();
  app.add_option("--threads", flags.n_threads, "Threads of each rank (0: cores / ranks)")
      ->check(CLI::Range(0, 256));
  app.add_option("--cpu-target", flags.cpu_target, "auto, avx2 or avx512: same bits, other speed")
      ->capture_default_str();
  app.add_option(
      "--fault", flags.fault,
      "Plant a fault: NAME[@layer=L,rank=R,round=N], with those selectors that 'lockstep "
      "fault --list' says for NAME");
  add_request_options(app, flags);
}

void refuse_request_flags(const RunFlags& flags) {
  const std::pair<const char*, bool> given[] = {{"--max-tokens", flags.max_tokens.has_value()},
                                                {"--temperature", flags.temperature.has_value()},
                                                {"--seed", flags.seed.has_value()},
                                                {"--ignore-eos", flags.ignore_eos}};
  for (const auto& [name, is_given] : given) {
    if (is_given) {
      fail_with(ExitCode::usage, "{}: each request to a server has its own; leave it out", name);
    }
  }
}

std::vector<std::string> run_arguments(const RunFlags& flags) {
  std::vector<std::string> argv;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) argv.push_back("--" + name + "=" + value);
  };
  add("model", flags.model_dir);
  add("shards", flags.shards_dir);
  add("tp", std::to_string(flags.n_ranks));
  add("precision", flags.precision);
  add("backend", flags.backend);
  add("devices", flags.devices);
  if (flags.share_device) argv.push_back("--share-device");
  add("kernels", flags.kernels);
  add("cuda-graphs", flags.cuda_graphs);
  if (flags.time_ops) argv.push_back("--time-ops");
  add("transport", flags.transport);
  add("kv", flags.kv);
  add("mtp", std::to_string(flags.n_drafts));
  add("draft-window", std::to_string(flags.draft_window));
  add("draft-vocab", flags.draft_vocab);
  add("slots", std::to_string(flags.n_slots));
  add("prefill-grid", std::to_string(flags.prefill_grid));
  add("max-context", flags.max_context == 0 ? "auto" : std::to_string(flags.max_context));
  add("device-memory", std::to_string(flags.device_memory));
  add("prefix-cache", std::to_string(flags.prefix_cache_bytes));
  add("threads", std::to_string(flags.n_threads));
  add("cpu-target", flags.cpu_target);
  add("fault", flags.fault);
  if (flags.max_tokens) add("max-tokens", std::to_string(*flags.max_tokens));
  if (flags.temperature) add("temperature", fmt::format("{}", *flags.temperature));
  if (flags.seed) add("seed", std::to_string(*flags.seed));
  if (flags.ignore_eos) argv.push_back("--ignore-eos");
  return argv;
}

}  // namespace lockstep
