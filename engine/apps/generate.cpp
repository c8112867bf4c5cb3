// lockstep generate: runs a job file on one or two rank processes and waits for them.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/process.h"
#include "engine/comm/mailbox.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct GenerateFlags {
  std::string model_dir;
  std::string shards_dir;
  std::string jobs;
  std::string out_dir;
  std::string precision = "bf16";
  std::string backend = "cpu";
  std::string kv;
  std::string cpu_target = "auto";
  std::string fault;
  int n_ranks = 2;
  int n_threads = 0;
  int n_slots = 1;
  int64_t prefill_grid = 512;
  int64_t max_context = 0;
};

void add_options(CLI::App& app, GenerateFlags& flags) {
  app.add_option("--model", flags.model_dir, "Folder with the checkpoint")->required();
  app.add_option("--jobs", flags.jobs, "Job file, one JSON object a line")->required();
  app.add_option("--out", flags.out_dir, "Folder for results.jsonl and taps")->required();
  app.add_option("--shards", flags.shards_dir, "Folder with shard files made by 'weights shard'");
  app.add_option("--tp", flags.n_ranks, "Ranks: 1 or 2")->check(CLI::Range(1, 2));
  app.add_option("--precision", flags.precision)->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--backend", flags.backend)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--kv", flags.kv, "KV cache type")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "int8"}));
  app.add_option("--prefill-grid", flags.prefill_grid,
                 "Prefill chunks end at multiples of this many positions");
  app.add_option("--max-context", flags.max_context, "Positions per slot (0: the model's)");
  app.add_option("--slots", flags.n_slots, "Requests that run together")->check(CLI::Range(1, 8));
  app.add_option("--threads", flags.n_threads, "Threads of each rank (0: cores / ranks)");
  app.add_option("--cpu-target", flags.cpu_target, "auto, avx2 or avx512: same bits, other speed");
  app.add_option("--fault", flags.fault, "Plant a fault (runs lockstep-rank-faulty)");
}

std::vector<std::string> rank_command(const GenerateFlags& flags, int rank, int mailbox_fd) {
  const char* program = flags.fault.empty() ? "lockstep-rank" : "lockstep-rank-faulty";
  std::vector<std::string> argv = {sibling_program(program).string()};
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) argv.push_back("--" + name + "=" + value);
  };
  add("model", flags.model_dir);
  add("shards", flags.shards_dir);
  add("jobs", flags.jobs);
  add("out", flags.out_dir);
  add("precision", flags.precision);
  add("kv", flags.kv);
  add("cpu-target", flags.cpu_target);
  add("fault", flags.fault);
  add("tp", std::to_string(flags.n_ranks));
  add("rank", std::to_string(rank));
  add("threads", std::to_string(flags.n_threads));
  add("slots", std::to_string(flags.n_slots));
  add("prefill-grid", std::to_string(flags.prefill_grid));
  add("max-context", std::to_string(flags.max_context));
  if (mailbox_fd >= 0) add("mailbox", "/proc/self/fd/" + std::to_string(mailbox_fd));
  return argv;
}

// Waits for all ranks. When one fails, the others get a moment to say why and are then killed; the
// exit code is that of the first that failed.
int wait_for_ranks(std::vector<ChildProcess>& ranks) {
  using Clock = std::chrono::steady_clock;
  std::vector<bool> done(ranks.size(), false);
  int exit_code = 0;
  Clock::time_point give_up = Clock::time_point::max();
  for (size_t n_done = 0; n_done < ranks.size();) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (done[i] || ranks[i].running()) continue;
      done[i] = true;
      ++n_done;
      const int code = ranks[i].wait();
      if (code != 0 && exit_code == 0) {
        exit_code = code;
        give_up = Clock::now() + std::chrono::seconds(2);
      }
    }
    if (Clock::now() > give_up) {
      ranks.clear();  // kills what still runs
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return exit_code;
}

int generate(const GenerateFlags& flags) {
  if (flags.backend == "cuda") fail("--backend cuda: this build has no CUDA backend");
  std::error_code error;
  fs::create_directories(flags.out_dir, error);
  if (error) fail("--out {}: {}", flags.out_dir, error.message());
  const int mailbox_fd = flags.n_ranks > 1 ? create_mailbox_file() : -1;
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < flags.n_ranks; ++rank) {
    ranks.emplace_back(rank_command(flags, rank, mailbox_fd));
  }
  return wait_for_ranks(ranks);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_main("lockstep-generate", [&] {
    CLI::App app("Generate text, or run a job file, on one or two ranks");
    lockstep::GenerateFlags flags;
    lockstep::add_options(app, flags);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : static_cast<int>(lockstep::ExitCode::usage);
    }
    return lockstep::generate(flags);
  });
}
