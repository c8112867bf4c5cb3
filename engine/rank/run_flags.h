// The flags that a run of the engine has, shared by the program of one rank and by those that start
// ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

struct RunFlags {
  std::string model_dir;
  std::string shards_dir;
  std::string precision = "bf16";
  std::string backend = "cpu";
  std::string devices;  // see choose_cards; empty: the first ones
  bool share_device = false;
  std::string kernels = "auto";
  std::string cuda_graphs = "on";
  bool time_ops = false;
  std::string transport = "auto";  // see choose_transport
  std::string kv;
  std::string cpu_target = "auto";
  std::string fault;
  int n_ranks = 2;
  int n_threads = 0;
  int n_slots = 2;
  int n_drafts = 3;
  int64_t draft_window = 0;
  std::string draft_vocab;
  int64_t prefill_grid = 512;
  int64_t max_context = 0;    // 0: auto
  int64_t device_memory = 0;  // 0: no cap
  int64_t prefix_cache_bytes = int64_t{256} << 20;

  // Over the request and over generation_config.json.
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<uint64_t> seed;
  bool ignore_eos = false;
};

void add_run_options(CLI::App& app, RunFlags& flags);

// For servers, where each request has its own. Throws Error (usage) when one of the last group is
// given.
void refuse_request_flags(const RunFlags& flags);

// The flags again as arguments of lockstep-rank, without --backend and --tp's rank.
std::vector<std::string> run_arguments(const RunFlags& flags);

}  // namespace lockstep
