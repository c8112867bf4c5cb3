#include "validation/gate/gate_runs.h"

#include <algorithm>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/golden_folder.h"
#include "engine/base/process.h"
#include "validation/exact/exact_model.h"
#include "validation/gate/run_digest.h"
#include "validation/tolerance.h"

namespace lockstep {
namespace {

// Enough for every state and both kinds of layer; the shortest prompt has one token.
constexpr size_t kShortPrompts = 4;

Oracle shortest_prompts(const Oracle& oracle) {
  std::vector<const OraclePrompt*> prompts;
  for (const OraclePrompt& prompt : oracle.prompts) {
    if (!prompt.has_image) prompts.push_back(&prompt);
  }
  std::stable_sort(prompts.begin(), prompts.end(),
                   [](const auto* a, const auto* b) { return a->ids.size() < b->ids.size(); });
  if (prompts.size() > kShortPrompts) prompts.resize(kShortPrompts);
  Oracle cut{oracle.prefix, oracle.tail, {}};
  for (const OraclePrompt* prompt : prompts) cut.prompts.push_back(*prompt);
  return cut;
}

void keep_prompts(Oracle& oracle, const std::vector<std::string>& names) {
  std::vector<OraclePrompt> kept;
  for (const std::string& name : names) {
    const auto at = std::find_if(oracle.prompts.begin(), oracle.prompts.end(),
                                 [&](const OraclePrompt& prompt) { return prompt.name == name; });
    if (at == oracle.prompts.end()) fail_with(ExitCode::usage, "no prompt {} in the oracle", name);
    kept.push_back(std::move(*at));
    oracle.prompts.erase(at);
  }
  oracle.prompts = std::move(kept);
}

void shorten(std::vector<EngineJob>& jobs, int max_tokens) {
  for (EngineJob& job : jobs) {
    job.max_tokens = std::min(job.max_tokens, max_tokens);
    if (!job.force_ids.empty()) job.force_ids.resize(static_cast<size_t>(job.max_tokens));
  }
}

}  // namespace

void run_tool(const std::vector<std::string>& argv) {
  const ProcessResult result = run_process(argv, std::chrono::minutes(10));
  if (result.timed_out) fail_with(ExitCode::could_not_judge, "{}: did not end", argv[0]);
  if (result.exit_code == 0) return;
  const std::string words = failure_reason(result.stderr_text);
  fail_with(
      result.exit_code == static_cast<int>(ExitCode::fail) ? ExitCode::fail
                                                           : ExitCode::could_not_judge,
      "{}",
      words.empty() ? fmt::format("{} ended with exit code {}", argv[0], result.exit_code) : words);
}

const Oracle& GateRuns::oracle() {
  if (!oracle_) {
    oracle_ = read_oracle(options_.oracle.empty() ? golden_folder() / "oracle" / "public"
                                                  : options_.oracle);
    leave_images_out(*oracle_, options_.model);
    if (!options_.prompts.empty()) keep_prompts(*oracle_, options_.prompts);
  }
  return *oracle_;
}

const Oracle& GateRuns::short_oracle() {
  if (!short_oracle_) short_oracle_ = shortest_prompts(oracle());
  return *short_oracle_;
}

std::string GateRuns::weights_program() const {
  return options_.weights.empty() ? sibling_program("lockstep-weights").string()
                                  : options_.weights.string();
}

const std::filesystem::path& GateRuns::shards() {
  if (shards_.empty()) {
    const std::filesystem::path folder = folder_.path() / "shards";
    try {
      run_tool({weights_program(), "shard", "--model", options_.model.string(), "--tp", "2",
                "--out", folder.string()});
    } catch (const Error& error) {
      // A checkpoint that cannot be split says nothing about the engine's arithmetic.
      throw Error(error.what(), ExitCode::could_not_judge);
    }
    shards_ = folder;
  }
  return shards_;
}

const std::filesystem::path& GateRuns::exact_model() {
  if (exact_model_.empty()) {
    exact::write_exact_model(folder_.path() / "exact");
    exact_model_ = folder_.path() / "exact";
  }
  return exact_model_;
}

std::string GateRuns::backend_of(const RunSpec& spec) const {
  const bool faulty = !spec.fault.empty() || !options_.fault.empty();
  return spec.precision == Precision::fp32 || faulty ? "cpu" : options_.policy.backend;
}

EngineOptions GateRuns::engine_options(const RunSpec& spec) {
  EngineOptions engine;
  engine.engine = options_.engine;
  engine.model = options_.model;
  engine.tp = spec.tp;
  engine.precision = spec.precision == Precision::fp32 ? "fp32" : "bf16";
  engine.backend = backend_of(spec);
  engine.prefill_grid = spec.prefill_grid;
  engine.slots = spec.slots;
  engine.mtp = spec.mtp;
  engine.prefix_cache_bytes = spec.prefix_cache_bytes;
  engine.fault = spec.fault.empty() ? options_.fault : spec.fault;
  if (spec.use_shards) engine.shards = shards();
  return engine;
}

std::vector<EngineResult> GateRuns::start(EngineOptions options,
                                          const std::vector<EngineJob>& jobs) {
  const bool by_user = !options_.fault.empty() && options.fault == options_.fault;
  try {
    std::vector<EngineResult> results = run_engine(options, jobs);
    n_reached_ += by_user ? 1 : 0;
    return results;
  } catch (const Error& error) {
    const bool unreached =
        by_user && std::string_view(error.what()).find("never fired") != std::string_view::npos;
    if (!unreached) {
      n_reached_ += by_user ? 1 : 0;
      throw;
    }
  }
  ++n_unreached_;
  options.fault.clear();
  return run_engine(options, jobs);
}

const std::string& GateRuns::backend_missing() {
  if (backend_missing_) return *backend_missing_;
  backend_missing_ = "";
  if (options_.policy.backend == "cpu") return *backend_missing_;
  if (options_.model.empty()) {
    return *(backend_missing_ = "no golden model beside these programs: give --model and --oracle");
  }
  EngineOptions engine;
  engine.engine = options_.engine;
  engine.model = options_.model;
  engine.backend = options_.policy.backend;
  engine.precision = "bf16";  // the only one that every backend computes in
  EngineJob job;
  job.name = "probe";
  job.ids = {1};
  job.max_tokens = 1;
  try {
    run_engine(engine, {job});
  } catch (const Error& error) {
    backend_missing_ = error.what();
  }
  return *backend_missing_;
}

const std::vector<EngineResult>& GateRuns::results(const RunSpec& spec) {
  if (!backend_missing().empty()) throw BackendMissing(backend_missing());
  const Oracle& prompts = spec.short_prompts ? short_oracle() : oracle();
  std::vector<EngineJob> jobs = oracle_jobs(prompts, spec.precision);
  if (spec.max_tokens > 0) shorten(jobs, spec.max_tokens);
  return results(spec, jobs);
}

const std::vector<EngineResult>& GateRuns::results(const RunSpec& spec,
                                                   const std::vector<EngineJob>& jobs) {
  if (!backend_missing().empty()) throw BackendMissing(backend_missing());
  const auto failed = errors_.find(spec.label);
  if (failed != errors_.end()) fail_with(ExitCode::could_not_judge, "{}", failed->second);
  const auto found = results_.find(spec.label);
  if (found != results_.end()) return found->second;
  try {
    auto& kept = results_[spec.label];
    if (!jobs.empty()) kept = start(engine_options(spec), jobs);
    digests_.emplace_back(spec.label, run_digest(kept));
    return kept;
  } catch (const Error& error) {
    results_.erase(spec.label);
    errors_[spec.label] = error.what();
    throw;
  }
}

}  // namespace lockstep
