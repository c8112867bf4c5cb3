#include "engine/rank/rank_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
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
#include "engine/rank/run_flags.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct RankFlags {
  RunFlags run;
  std::string jobs;
  std::string out_dir;
  std::string mailbox;
  int rank = 0;
};

KvType parse_kv(const RunFlags& flags) {
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

EngineOptions engine_options(const RunFlags& flags, const ModelText& text) {
  EngineOptions options;
  options.precision = flags.precision == "fp32" ? Precision::fp32 : Precision::bf16;
  options.kv_type = parse_kv(flags);
  options.prefill_grid = flags.prefill_grid;
  options.max_context = flags.max_context;
  options.n_slots = flags.n_slots;
  options.n_drafts = flags.n_drafts;
  options.draft_window = flags.draft_window;
  options.draft_vocab = flags.draft_vocab;
  options.n_live_tokens = text.n_live_tokens();
  options.prefix_cache_bytes = flags.prefix_cache_bytes;
  return options;
}

JobOverrides overrides_of(const RunFlags& flags) {
  JobOverrides overrides;
  overrides.max_tokens = flags.max_tokens;
  if (flags.temperature) overrides.temperature = static_cast<float>(*flags.temperature);
  overrides.seed = flags.seed;
  overrides.ignore_eos = flags.ignore_eos;
  return overrides;
}

std::unique_ptr<Communicator> join_peers(const RankFlags& flags, bool may_spin) {
  if (flags.run.n_ranks == 1) return make_single_rank_communicator();
  if (flags.mailbox.empty()) {
    fail_with(ExitCode::usage,
              "--tp 2 needs --mailbox FILE; 'lockstep generate' starts both ranks");
  }
  MailboxOptions options;
  options.spin = may_spin;
  return join_mailbox(flags.mailbox, flags.rank, options);
}

void write_outputs(const RankFlags& flags, const RankEngine& engine, const ModelText& text,
                   const std::vector<Request>& requests,
                   const std::vector<RequestResult>& results) {
  const fs::path out(flags.out_dir);
  std::string lines;
  for (size_t i = 0; i < requests.size(); ++i) {
    std::string shown;
    if (text.has_tokenizer()) shown = text.decode(results[i].ids, requests[i].stop_strings);
    lines += result_line(requests[i], results[i], text.has_tokenizer() ? &shown : nullptr) + "\n";
    if (const TapRecorder* taps = engine.taps(i)) {
      taps->write(out / fmt::format("{}.rank{}.safetensors", requests[i].name, flags.rank));
    }
  }
  const std::string name =
      flags.rank == 0 ? "results.jsonl" : fmt::format("results.rank{}.jsonl", flags.rank);
  write_file_atomically(out / name, lines);
}

#if defined(LOCKSTEP_FAULTS)
// A planted fault that fired on no rank proves nothing about the judge.
void check_fault_fired(const std::string& fault, Communicator& comm) {
  const long mine = fault_firings();
  std::vector<long> all(static_cast<size_t>(comm.n_ranks()));
  comm.all_gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  const bool fired = std::any_of(all.begin(), all.end(), [](long n) { return n > 0; });
  if (!fault.empty() && !fired) fail_with(ExitCode::mistrusted, "--fault {}: never fired", fault);
}
#endif

int run_jobs(const RankFlags& flags) {
  const RunFlags& run = flags.run;
  if (run.backend == "cuda") fail("--backend cuda: this build has no CUDA backend; use cpu");
#if defined(LOCKSTEP_FAULTS)
  select_fault(run.fault);
#else
  if (!run.fault.empty()) {
    fail_with(ExitCode::usage, "--fault {}: only lockstep-rank-faulty can plant faults", run.fault);
  }
#endif
  select_cpu_target(run.cpu_target);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int n_threads = run.n_threads > 0 ? run.n_threads : std::max(1, cores / run.n_ranks);
  const bool may_spin = n_threads * run.n_ranks <= cores;
  ThreadPool pool(n_threads, may_spin);
  run_ops_self_check(pool);

  const ModelSource source =
      open_model_source(run.model_dir, run.shards_dir, run.n_ranks, flags.rank);
  const RankWeights weights = load_rank_weights(
      source.config, {source.checkpoint.get(), source.sharded}, run.n_ranks, flags.rank);
  const ModelText text(run.model_dir);
  const ImageReader images(run.model_dir, source.config);
  const auto comm = join_peers(flags, may_spin);
  RankEngine engine(source.config, weights, engine_options(run, text), *comm, pool);
  const std::vector<Request> requests =
      read_jobs(flags.jobs, {source.config, text, images}, load_generation_defaults(run.model_dir),
                overrides_of(run));
  const std::vector<RequestResult> results = engine.run(requests);
  write_outputs(flags, engine, text, requests, results);
#if defined(LOCKSTEP_FAULTS)
  check_fault_fired(run.fault, *comm);
#endif
  return 0;
}

}  // namespace

int rank_main(const char* program, int argc, char** argv) {
  return run_main(program, [&] {
    CLI::App app("One rank of the engine: runs a job file");
    RankFlags flags;
    flags.run.n_ranks = 1;
    add_run_options(app, flags.run);
    app.add_option("--jobs", flags.jobs, "Job file, one JSON object a line")->required();
    app.add_option("--out", flags.out_dir, "Folder for results.jsonl and taps")->required();
    app.add_option("--rank", flags.rank, "This rank")->check(CLI::Range(0, 1));
    app.add_option("--mailbox", flags.mailbox, "Mailbox file that joins two ranks");
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
    }
    return run_jobs(flags);
  });
}

}  // namespace lockstep
