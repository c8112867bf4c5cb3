#include "engine/rank/rank_program.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/base/mapped_file.h"
#include "engine/comm/mailbox.h"
#include "engine/model/model_source.h"
#include "engine/ops/common/cpu_target.h"
#include "engine/ops/self_check/self_check.h"
#include "engine/rank/engine.h"
#include "engine/rank/jobs.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct RankFlags {
  std::string model_dir;
  std::string shards_dir;
  std::string jobs;
  std::string out_dir;
  std::string precision = "bf16";
  std::string kv;
  std::string cpu_target = "auto";
  std::string fault;
  std::string mailbox;
  int n_ranks = 1;
  int rank = 0;
  int n_threads = 0;
  EngineOptions engine;
};

KvType parse_kv(const RankFlags& flags) {
  if (flags.precision == "fp32") {
    if (!flags.kv.empty() && flags.kv != "fp32") {
      fail_with(ExitCode::usage, "--kv {}: precision fp32 keeps its KV cache in fp32", flags.kv);
    }
    return KvType::fp32;
  }
  if (flags.kv.empty() || flags.kv == "bf16") return KvType::bf16;
  if (flags.kv == "fp16") return KvType::fp16;
  if (flags.kv == "int8") return KvType::int8;
  fail_with(ExitCode::usage, "--kv {}: precision bf16 takes bf16, fp16 or int8", flags.kv);
}

void add_options(CLI::App& app, RankFlags& flags) {
  app.add_option("--model", flags.model_dir, "Folder with the checkpoint")->required();
  app.add_option("--shards", flags.shards_dir, "Folder with shard files made by 'weights shard'");
  app.add_option("--jobs", flags.jobs, "Job file, one JSON object a line")->required();
  app.add_option("--out", flags.out_dir, "Folder for results.jsonl and taps")->required();
  app.add_option("--tp", flags.n_ranks, "Number of ranks")->check(CLI::Range(1, 2));
  app.add_option("--rank", flags.rank, "This rank")->check(CLI::Range(0, 1));
  app.add_option("--mailbox", flags.mailbox, "Mailbox file that joins two ranks");
  app.add_option("--precision", flags.precision)->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--kv", flags.kv, "KV cache type")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "int8"}));
  app.add_option("--prefill-grid", flags.engine.prefill_grid,
                 "Prefill chunks end at multiples of this many positions");
  app.add_option("--max-context", flags.engine.max_context, "Positions per slot (0: the model's)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--slots", flags.engine.n_slots, "Requests that run together")
      ->check(CLI::Range(1, kMaxSlots));
  app.add_option("--mtp", flags.engine.n_drafts, "Drafts per round")->check(CLI::Range(0, kMaxDrafts));
  app.add_option("--draft-vocab", flags.engine.draft_vocab,
                 "Drafts come from this many first vocabulary rows (0: all)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--prefix-cache", flags.engine.prefix_cache_bytes,
                 "Bytes for prefix snapshots (0: off)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--threads", flags.n_threads, "Threads of this rank (0: cores / ranks)")
      ->check(CLI::Range(0, 256));
  app.add_option("--cpu-target", flags.cpu_target, "auto, avx2 or avx512: same bits, other speed");
#if defined(LOCKSTEP_FAULTS)
  app.add_option("--fault", flags.fault, "Fault point to plant, NAME[@layer=,rank=,round=]");
#endif
}

std::unique_ptr<Communicator> join_peers(const RankFlags& flags, bool may_spin) {
  if (flags.n_ranks == 1) return make_single_rank_communicator();
  if (flags.mailbox.empty()) {
    fail_with(ExitCode::usage,
              "--tp 2 needs --mailbox FILE; 'lockstep generate' starts both ranks");
  }
  MailboxOptions options;
  options.spin = may_spin;
  return join_mailbox(flags.mailbox, flags.rank, options);
}

void write_outputs(const RankFlags& flags, const RankEngine& engine,
                   const std::vector<Request>& requests,
                   const std::vector<RequestResult>& results) {
  const fs::path out(flags.out_dir);
  std::string lines;
  for (size_t i = 0; i < requests.size(); ++i) {
    lines += result_line(requests[i], results[i]) + "\n";
    if (const TapRecorder* taps = engine.taps(i)) {
      taps->write(out / fmt::format("{}.rank{}.safetensors", requests[i].name, flags.rank));
    }
  }
  const std::string name =
      flags.rank == 0 ? "results.jsonl" : fmt::format("results.rank{}.jsonl", flags.rank);
  write_file_atomically(out / name, lines);
}

int run_jobs(RankFlags& flags) {
#if defined(LOCKSTEP_FAULTS)
  select_fault(flags.fault);
#endif
  select_cpu_target(flags.cpu_target);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int n_threads = flags.n_threads > 0 ? flags.n_threads : std::max(1, cores / flags.n_ranks);
  const bool may_spin = n_threads * flags.n_ranks <= cores;
  ThreadPool pool(n_threads, may_spin);
  run_ops_self_check(pool);

  flags.engine.precision = flags.precision == "fp32" ? Precision::fp32 : Precision::bf16;
  flags.engine.kv_type = parse_kv(flags);
  const ModelSource source =
      open_model_source(flags.model_dir, flags.shards_dir, flags.n_ranks, flags.rank);
  const RankWeights weights = load_rank_weights(
      source.config, {source.checkpoint.get(), source.sharded}, flags.n_ranks, flags.rank);
  const auto comm = join_peers(flags, may_spin);
  RankEngine engine(source.config, weights, flags.engine, *comm, pool);
  const std::vector<Request> requests = read_jobs(flags.jobs);
  const std::vector<RequestResult> results = engine.run(requests);
  write_outputs(flags, engine, requests, results);
#if defined(LOCKSTEP_FAULTS)
  if (!flags.fault.empty() && fault_firings() == 0) {
    fail_with(ExitCode::mistrusted, "--fault {}: never fired", flags.fault);
  }
#endif
  return 0;
}

}  // namespace

int rank_main(const char* program, int argc, char** argv) {
  return run_main(program, [&] {
    CLI::App app("One rank of the engine");
    RankFlags flags;
    add_options(app, flags);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
    }
    return run_jobs(flags);
  });
}

}  // namespace lockstep
