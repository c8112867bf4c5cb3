#include "validation/compare/compare.h"

#include <fmt/format.h>

#include <set>

#include "engine/base/error.h"
#include "validation/compare/draft_judge.h"
#include "validation/compare/greedy_judge.h"
#include "validation/tolerance.h"

namespace lockstep {
namespace {

// Everything of the prompt, so that a layer which the oracle does not know is noticed; of decode
// and the states what the oracle holds. A state is asked for whole, its sums are made here.
std::vector<std::string> requested_taps(const OraclePrompt& prompt, Precision precision) {
  std::set<std::string> names = {"embed", "layers.*", "final_norm"};
  for (const auto& [tap, unused] : prompt.taps) {
    const bool state = tap.starts_with("state/");
    if (tap.starts_with("decode/") || (state && precision == Precision::fp32)) {
      names.insert(engine_tap(tap));
    }
  }
  if (prompt.has_image) {
    names.insert({"image/embed", "image/layers.*", "vision_embeds", "pixel_values"});
  }
  return {names.begin(), names.end()};
}

PromptReport judge_prompt(const OraclePrompt& prompt, const EngineResult& result,
                          Precision precision, const LogitGeometry* geometry) {
  PromptReport report;
  report.name = prompt.name;
  judge_taps(prompt, result.dump, precision, report);
  if (prompt.rope_delta != result.rope_delta) {
    const auto shown = [](const std::optional<int64_t>& delta) {
      return delta ? std::to_string(*delta) : "none";
    };
    report.verdict = merge(report.verdict, Verdict::fail);
    report.reasons.push_back(fmt::format("rope_delta {} instead of {}", shown(result.rope_delta),
                                         shown(prompt.rope_delta)));
    if (report.first_bad.empty()) report.first_bad = "rope_delta";
  }
  report.greedy = geometry == nullptr ? judge_free_run(prompt, result)
                                      : judge_forced_run(prompt, result, *geometry);
  report.verdict = merge(report.verdict, report.greedy.verdict);
  if (!report.greedy.reason.empty()) report.reasons.push_back(report.greedy.reason);
  if (report.first_bad.empty()) report.first_bad = report.greedy.first_bad;
  if (precision == Precision::fp32) report.drafts = judge_drafts(prompt, result);
  report.verdict = merge(report.verdict, report.drafts.verdict);
  if (!report.drafts.reason.empty()) report.reasons.push_back(report.drafts.reason);
  if (report.first_bad.empty()) report.first_bad = report.drafts.first_bad;
  return report;
}

PromptReport skipped_prompt(const OraclePrompt& prompt) {
  PromptReport report;
  report.name = prompt.name;
  report.skipped = true;
  report.verdict = Verdict::skipped;
  report.reasons.push_back(kImageOutOfScope);
  return report;
}

// A run that looked at too little proves nothing, however well it went.
void judge_coverage(CompareReport& report) {
  int64_t n_positions = 0;
  int64_t n_steps = 0;
  for (const PromptReport& prompt : report.prompts) {
    n_positions += prompt.n_positions;
    n_steps += prompt.greedy.n_judged;
  }
  if (n_positions < tolerance::kMinPositions || n_steps < tolerance::kMinGreedySteps) {
    report.verdict = merge(report.verdict, Verdict::mistrusted);
    report.reasons.push_back(
        fmt::format("{} positions and {} generated tokens were compared, need {} and {}",
                    n_positions, n_steps, tolerance::kMinPositions, tolerance::kMinGreedySteps));
  }
}

}  // namespace

Precision parse_precision(const std::string& text) {
  if (text == "fp32") return Precision::fp32;
  if (text == "bf16") return Precision::bf16;
  fail_with(ExitCode::usage, "unknown precision {}: use fp32 or bf16", text);
}

std::vector<EngineJob> oracle_jobs(const Oracle& oracle, Precision precision) {
  std::vector<EngineJob> jobs;
  for (const OraclePrompt& prompt : oracle.prompts) {
    if (!prompt.in_scope) continue;
    EngineJob job;
    job.name = prompt.name;
    job.ids = prompt.ids;
    job.images = prompt.images;
    job.max_tokens = static_cast<int>(prompt.greedy.size());
    if (precision == Precision::bf16) job.force_ids = prompt.greedy;
    job.taps = requested_taps(prompt, precision);
    job.tap_positions = oracle.tail;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

CompareReport judge_run(const Oracle& oracle, const std::vector<EngineResult>& results,
                        Precision precision, const std::filesystem::path& model) {
  std::optional<LogitGeometry> geometry;
  if (precision == Precision::bf16) geometry.emplace(model);
  CompareReport report;
  size_t next = 0;
  for (const OraclePrompt& prompt : oracle.prompts) {
    if (!prompt.in_scope) {
      report.prompts.push_back(skipped_prompt(prompt));
      continue;
    }
    LOCKSTEP_CHECK(next < results.size() && results[next].name == prompt.name);
    report.prompts.push_back(
        judge_prompt(prompt, results[next++], precision, geometry ? &*geometry : nullptr));
    report.verdict = merge(report.verdict, report.prompts.back().verdict);
  }
  judge_coverage(report);
  return report;
}

CompareReport compare_with_oracle(Oracle oracle, const EngineOptions& options) {
  const Precision precision = parse_precision(options.precision);
  leave_images_out(oracle, options.model);
  const std::vector<EngineJob> jobs = oracle_jobs(oracle, precision);
  // Without a job there is nothing to start; judge_run says so.
  const std::vector<EngineResult> results =
      jobs.empty() ? std::vector<EngineResult>() : run_engine(options, jobs);
  try {
    return judge_run(oracle, results, precision, options.model);
  } catch (const Error& error) {
    throw Error(error.what(), ExitCode::could_not_judge);
  }
}

}  // namespace lockstep
