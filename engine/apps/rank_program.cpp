#include "engine/apps/rank_program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/cli.h"
#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/base/mapped_file.h"
#include "engine/rank/engine.h"
#include "engine/rank/http/serve_rank.h"
#include "engine/rank/jobs.h"
#include "engine/rank/loaded_rank.h"
#include "engine/rank/memory_plan.h"
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

// What the rank planned to need, beside the results.
void write_plan(const RankFlags& flags, const MemoryPlan& plan) {
  const std::string name =
      flags.rank == 0 ? "memory-plan.json" : fmt::format("memory-plan.rank{}.json", flags.rank);
  write_file_atomically(fs::path(flags.out_dir) / name,
                        to_json(plan, flags.rank, flags.run.device_memory));
}

void write_op_times(const RankFlags& flags, const std::vector<OpTime>& times) {
  nlohmann::json json = nlohmann::json::array();
  for (const OpTime& time : times) {
    json.push_back({{"op", time.op}, {"seconds", time.seconds}, {"n", time.n}});
  }
  const std::string name =
      flags.rank == 0 ? "op-times.json" : fmt::format("op-times.rank{}.json", flags.rank);
  write_file_atomically(fs::path(flags.out_dir) / name, json.dump(1) + "\n");
}

JobOverrides overrides_of(const RunFlags& flags) {
  JobOverrides overrides;
  overrides.max_tokens = flags.max_tokens;
  if (flags.temperature) overrides.temperature = static_cast<float>(*flags.temperature);
  overrides.seed = flags.seed;
  overrides.ignore_eos = flags.ignore_eos;
  return overrides;
}

void write_taps(const RankFlags& flags, const RankEngine& engine,
                const std::vector<Request>& requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const TapRecorder* taps = engine.taps(i);
    if (taps == nullptr) continue;
    taps->write(fs::path(flags.out_dir) /
                fmt::format("{}.rank{}.safetensors", requests[i].name, flags.rank));
  }
}

// Runs all of them. When the ranks disagree, what was tapped until then is kept: it says which
// tensor differed first.
std::vector<RequestResult> run_requests(const RankFlags& flags, RankEngine& engine,
                                        const std::vector<Request>& requests) {
  try {
    return engine.run(requests);
  } catch (const Error& error) {
    if (error.code() == ExitCode::lockstep_failure) write_taps(flags, engine, requests);
    throw;
  }
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
  }
  write_taps(flags, engine, requests);
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
  LoadedRank loaded(flags.run, flags.rank, flags.mailbox);
  write_plan(flags, loaded.plan);
  RankEngine engine(loaded.source.config, loaded.weights, loaded.engine_options(), *loaded.comm,
                    loaded.pool);
  const std::vector<Request> requests =
      read_jobs(flags.jobs, {loaded.source.config, loaded.text, loaded.images},
                load_generation_defaults(flags.run.model_dir), overrides_of(flags.run));
  const std::vector<RequestResult> results = run_requests(flags, engine, requests);
  write_outputs(flags, engine, loaded.text, requests, results);
  if (flags.run.time_ops) write_op_times(flags, engine.backend().op_times());
#if defined(LOCKSTEP_FAULTS)
  check_fault_fired(flags.run.fault, *loaded.comm);
#endif
  return 0;
}

}  // namespace

int rank_main(const char* program, int argc, char** argv) {
  const bool serves = argc > 1 && std::string(argv[1]) == "serve";
  if (serves) return serve_rank_main(program, argc - 1, argv + 1);
  return run_main(program, [&] {
    CLI::App app("One rank of the engine: runs a job file, or serves ('serve --help')");
    RankFlags flags;
    flags.run.n_ranks = 1;
    add_run_options(app, flags.run);
    app.add_option("--jobs", flags.jobs, "Job file, one JSON object a line")->required();
    app.add_option("--out", flags.out_dir, "Folder for results.jsonl and taps")->required();
    app.add_option("--rank", flags.rank, "This rank")->check(CLI::Range(0, 1));
    app.add_option("--mailbox", flags.mailbox, "Mailbox file that joins two ranks");
    if (const auto ended = parse_command_line(app, argc, argv)) return *ended;
    return run_jobs(flags);
  });
}

}  // namespace lockstep
