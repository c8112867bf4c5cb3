// Engines that are programs with --jobs, and recorded oracles.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/progress.h"
#include "validation/diverge/side.h"

namespace lockstep {
namespace {

SideStep step_of(const StepLogits& logits, int32_t chosen) {
  SideStep step{{chosen, {}}, {}};
  for (size_t i = 0; i < logits.ids.size(); ++i) {
    step.top.push_back({{logits.ids[i], {}}, logits.values[i] - logits.log_sum_exp});
  }
  return step;
}

std::vector<int32_t> ids_of(const SideRun& run, const std::string& prompt) {
  std::vector<int32_t> ids;
  for (const SideStep& step : run.steps) {
    if (step.chosen.id < 0) {
      fail_with(ExitCode::could_not_judge,
                "prompt {}: the first side gives no token ids, so that nothing can be fed", prompt);
    }
    ids.push_back(step.chosen.id);
  }
  return ids;
}

// Decode feeds every token but the last. Rows behind them are those of drafts that nobody took.
void keep_fed_rows(int64_t n_fed, TapMap& taps) {
  for (auto& [tap, tensor] : taps) {
    if (!tap.starts_with("decode/") || tensor.shape.empty()) continue;
    tensor.shape[0] = std::min(tensor.shape[0], n_fed);
    tensor.values.resize(static_cast<size_t>(tensor.shape[0] * tensor.row_length()));
  }
  std::erase_if(taps, [](const auto& entry) { return entry.second.values.empty(); });
}

class ProgramSide : public Side {
 public:
  ProgramSide(const std::string& command, const SideOptions& options) : label_(command) {
    std::istringstream words(command);
    std::string word;
    while (words >> word) engine_.argv.push_back(word);
    for (size_t i = 0; i + 1 < engine_.argv.size(); ++i) {
      if (engine_.argv[i] == "--tp") engine_.tp = engine_.argv[i + 1] == "2" ? 2 : 1;
    }
    const bool names_model = std::ranges::find(engine_.argv, "--model") != engine_.argv.end();
    if (!options.model.empty() && !names_model) {
      engine_.argv.insert(engine_.argv.end(), {"--model", options.model.string()});
    }
    engine_.timeout = options.timeout;
  }

  std::string label() const override { return label_; }

  std::vector<SideRun> run(const std::vector<DivergePrompt>& prompts, int max_tokens) override {
    std::vector<EngineJob> jobs;
    for (const DivergePrompt& prompt : prompts) {
      jobs.push_back(job_of(prompt));
      jobs.back().max_tokens = max_tokens;
    }
    return runs_of(jobs);
  }

  std::vector<SideRun> follow(const std::vector<DivergePrompt>& prompts,
                              const std::vector<SideRun>& reference) override {
    std::vector<EngineJob> jobs;
    for (size_t i = 0; i < prompts.size(); ++i) {
      jobs.push_back(job_of(prompts[i]));
      jobs.back().force_ids = ids_of(reference[i], prompts[i].name);
      jobs.back().max_tokens = static_cast<int>(jobs.back().force_ids.size());
    }
    // The free runs too, for their texts.
    for (size_t i = 0; i < prompts.size(); ++i) {
      EngineJob job = jobs[i];
      job.name += ".free";
      job.force_ids.clear();
      jobs.push_back(std::move(job));
    }
    std::vector<SideRun> runs = runs_of(jobs);
    for (size_t i = 0; i < prompts.size(); ++i) runs[i].text = runs[prompts.size() + i].text;
    runs.resize(prompts.size());
    return runs;
  }

  std::optional<std::vector<TapMap>> taps(const std::vector<TapJob>& wanted) override {
    std::vector<EngineJob> jobs;
    for (const TapJob& want : wanted) {
      EngineJob job = job_of(want.prompt);
      job.force_ids = want.forced;
      job.max_tokens = static_cast<int>(want.forced.size());
      job.taps = {"embed", "layers.*", "final_norm", "decode/*"};
      job.tap_positions = static_cast<int64_t>(std::max(job.ids.size(), want.forced.size()));
      job.inject = want.inject;
      jobs.push_back(std::move(job));
    }
    std::vector<TapMap> maps;
    for (EngineResult& result : run_jobs(jobs, "operations of")) {
      maps.push_back(std::move(result.dump.taps));
      keep_fed_rows(static_cast<int64_t>(wanted[maps.size() - 1].forced.size()) - 1, maps.back());
    }
    return maps;
  }

 private:
  static EngineJob job_of(const DivergePrompt& prompt) {
    if (prompt.ids.empty()) {
      fail_with(ExitCode::could_not_judge, "prompt {}: a program needs its token ids", prompt.name);
    }
    EngineJob job;
    job.name = prompt.name;
    job.ids = prompt.ids;
    return job;
  }

  // A program answers all at its end: the bar says what is being waited for.
  std::vector<EngineResult> run_jobs(const std::vector<EngineJob>& jobs, const char* doing) const {
    const std::string program = std::filesystem::path(engine_.argv[0]).filename();
    Progress progress(fmt::format("{} {}", doing, program), jobs.size(), "jobs");
    progress.advance(0);
    std::vector<EngineResult> results = run_engine(engine_, jobs);
    progress.advance(jobs.size());
    return results;
  }

  std::vector<SideRun> runs_of(const std::vector<EngineJob>& jobs) const {
    std::vector<SideRun> runs;
    for (const EngineResult& result : run_jobs(jobs, "running")) {
      SideRun run;
      run.text = result.text;
      for (size_t i = 0; i < result.ids.size(); ++i) {
        run.steps.push_back(step_of(result.logits[i], result.ids[i]));
      }
      runs.push_back(std::move(run));
    }
    return runs;
  }

  std::string label_;
  EngineOptions engine_;
};

class OracleSide : public Side {
 public:
  explicit OracleSide(const std::string& prefix) : oracle_(read_oracle(prefix)) {}

  std::string label() const override { return "oracle " + oracle_.prefix; }

  std::vector<SideRun> run(const std::vector<DivergePrompt>& prompts, int max_tokens) override {
    std::vector<SideRun> runs;
    for (const DivergePrompt& prompt : prompts) {
      const OraclePrompt& recorded = find(prompt);
      const size_t n = std::min(recorded.greedy.size(), static_cast<size_t>(max_tokens));
      SideRun run;
      if (n == recorded.greedy.size()) run.text = recorded.shown_text();
      for (size_t i = 0; i < n; ++i) {
        const double logprob = recorded.logprob[i];
        run.steps.push_back({{recorded.greedy[i], {}},
                             {{{recorded.greedy[i], {}}, logprob},
                              {{recorded.second[i], {}}, logprob - recorded.margin[i]}}});
      }
      runs.push_back(std::move(run));
    }
    return runs;
  }

  std::vector<SideRun> follow(const std::vector<DivergePrompt>&,
                              const std::vector<SideRun>&) override {
    fail_with(ExitCode::usage, "an oracle can only be the first side: it cannot be fed tokens");
  }

  std::optional<std::vector<TapMap>> taps(const std::vector<TapJob>&) override {
    return std::nullopt;
  }

 private:
  const OraclePrompt& find(const DivergePrompt& prompt) const {
    for (const OraclePrompt& one : oracle_.prompts) {
      if (one.name == prompt.name && one.ids == prompt.ids) return one;
    }
    fail_with(ExitCode::could_not_judge, "{}: holds no prompt {} of these ids", oracle_.prefix,
              prompt.name);
  }

  Oracle oracle_;
};

}  // namespace

std::optional<double> SideStep::logprob_of(const Token& token) const {
  for (const TokenLogprob& entry : top) {
    if (entry.token == token) return entry.logprob;
  }
  return std::nullopt;
}

bool share_names(const Token& a, const Token& b) {
  return (a.id >= 0 && b.id >= 0) || (!a.text.empty() && !b.text.empty());
}

std::unique_ptr<Side> make_program_side(const std::string& command, const SideOptions& options) {
  return std::make_unique<ProgramSide>(command, options);
}

std::unique_ptr<Side> make_oracle_side(const std::string& prefix) {
  return std::make_unique<OracleSide>(prefix);
}

std::unique_ptr<Side> make_side(const std::string& spec, const SideOptions& options) {
  if (spec.starts_with("https://")) {
    fail_with(ExitCode::usage, "{}: only http:// is spoken; put a local forwarder in front", spec);
  }
  if (spec.starts_with("http://")) return make_endpoint_side(spec, options);
  if (spec.starts_with("oracle:")) return make_oracle_side(spec.substr(7));
  if (spec.find_first_not_of(' ') == std::string::npos) {
    fail_with(ExitCode::usage, "a side needs a program, http://HOST:PORT or oracle:PREFIX");
  }
  return make_program_side(spec, options);
}

}  // namespace lockstep
