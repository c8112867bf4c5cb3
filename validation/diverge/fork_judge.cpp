#include "validation/diverge/fork_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "engine/base/median.h"
#include "validation/diverge/drift_class.h"
#include "validation/tolerance.h"

namespace lockstep {
namespace {

constexpr size_t kNone = kDriftClasses.size();

double sigma(const ForkStep& step, size_t drift_class) {
  return tolerance::kBf16NoiseFactor * kDriftClasses[drift_class].final_norm_noise * step.scale;
}

struct Sigmas {
  double worst = 0;
  size_t worst_at = 0;  // index into steps
  double rms = 0;
};

Sigmas sigmas_of(const ForkEvidence& evidence, size_t drift_class) {
  Sigmas result;
  double squares = 0;
  for (size_t i = 0; i < evidence.steps.size(); ++i) {
    const double one = evidence.steps[i].drift() / sigma(evidence.steps[i], drift_class);
    squares += one * one;
    if (one <= result.worst) continue;
    result.worst = one;
    result.worst_at = i;
  }
  if (!evidence.steps.empty()) {
    result.rms = std::sqrt(squares / static_cast<double>(evidence.steps.size()));
  }
  return result;
}

// The finest class within whose bounds all forks and margins lie. Margins are judged together: one
// without a fork may be far off where the text is sensitive.
size_t explains_forks(const ForkEvidence& evidence) {
  for (size_t c = 0; c < kNone; ++c) {
    const bool forks = std::ranges::all_of(evidence.steps, [&](const ForkStep& step) {
      return !step.fork || step.drift() <= tolerance::kBf16LogitSigmas * sigma(step, c);
    });
    if (forks && sigmas_of(evidence, c).rms <= tolerance::kBf16MarginRms) return c;
  }
  return kNone;
}

struct LocalFinding {
  size_t needed = 0;  // class; kNone when no class explains it
  std::string culprit;
  std::string reason;
};

// "mixer", "mlp", "out", ...: errors of one kind of tap are relative to alike lengths.
std::string kind_of(const std::string& tap) {
  return tap.substr(tap.rfind('.') + 1);
}

// As a coarser arithmetic makes it: most operations are beyond the limit, and within each kind none
// stands out.
bool is_even(const std::vector<LocalError>& errors, double limit) {
  std::map<std::string, std::vector<double>> kinds;
  std::vector<double> all;
  for (const LocalError& error : errors) {
    kinds[kind_of(error.tap)].push_back(error.rel_l2);
    all.push_back(error.rel_l2);
  }
  return median(all) > limit && std::ranges::all_of(kinds, [&](const auto& kind) {
           const double worst = *std::ranges::max_element(kind.second);
           return worst <= limit || worst <= tolerance::kEvenSpread * median(kind.second);
         });
}

LocalFinding judge_local(const std::vector<LocalError>& errors, size_t declared) {
  LocalFinding finding;
  const double limit = local_limit(declared);
  const auto first =
      std::ranges::find_if(errors, [&](const LocalError& error) { return error.rel_l2 > limit; });
  if (first == errors.end()) return finding;
  const double worst = std::ranges::max_element(errors, {}, &LocalError::rel_l2)->rel_l2;
  finding.needed = kNone;
  const bool even = is_even(errors, limit);
  for (size_t c = kNone; even && c-- > 0;) {
    if (worst <= local_limit(c)) finding.needed = c;
  }
  if (finding.needed != kNone) return finding;
  finding.culprit = first->tap;
  finding.reason = fmt::format("{} is off by {:.3g} on equal input, {:.3g} is allowed", first->tap,
                               first->rel_l2, limit);
  return finding;
}

bool is_finite(const ForkEvidence& evidence) {
  const bool steps = std::ranges::all_of(
      evidence.steps, [](const ForkStep& step) { return std::isfinite(step.drift()); });
  return steps && std::ranges::all_of(evidence.local, [](const LocalError& error) {
           return std::isfinite(error.rel_l2);
         });
}

std::string words(const ForkStep& step) {
  return fmt::format("step {}: margin {:.4g} against {:.4g}", step.step, step.margin_a,
                     step.margin_b);
}

ForkJudgement judge_texts(const ForkEvidence& evidence) {
  ForkJudgement judgement;
  if (evidence.length == 0) {
    judgement.verdict = ForkVerdict::mistrusted;
    judgement.reason = "a side gives neither text nor log-probabilities";
  } else if (evidence.prefix < evidence.length) {
    judgement.verdict = ForkVerdict::undecided;
    judgement.reason = fmt::format(
        "texts part at byte {}, and without log-probabilities of the same tokens nobody can tell a "
        "tie from a defect",
        evidence.prefix);
  } else {
    judgement.reason = "texts alone were compared";
  }
  return judgement;
}

}  // namespace

std::string_view fork_verdict_name(ForkVerdict verdict) {
  switch (verdict) {
    case ForkVerdict::same:
      return "SAME";
    case ForkVerdict::tie:
      return "TIE";
    case ForkVerdict::undecided:
      return "UNDECIDED";
    case ForkVerdict::mistrusted:
      return "MISTRUSTED";
    case ForkVerdict::drift:
      return "DRIFT";
    case ForkVerdict::defect:
      return "DEFECT";
  }
  LOCKSTEP_CHECK(false);
  return {};
}

double ForkStep::drift() const {
  return std::fabs(margin_a - margin_b);
}

ForkJudgement judge_forks(const ForkEvidence& evidence, const JudgeOptions& options) {
  if (evidence.text_only) return judge_texts(evidence);
  ForkJudgement judgement;
  if (!is_finite(evidence)) {
    judgement.verdict = ForkVerdict::defect;
    judgement.reason = "a side computed NaN or infinity";
    return judgement;
  }
  const Sigmas sigmas = sigmas_of(evidence, options.declared);
  judgement.worst_sigmas = sigmas.worst;
  judgement.rms_sigmas = sigmas.rms;
  const LocalFinding local = judge_local(evidence.local, options.declared);
  const size_t needed = std::max(local.needed, explains_forks(evidence));
  const bool forked = std::ranges::any_of(evidence.steps, [](const auto& s) { return s.fork; });
  judgement.culprit = local.culprit;
  if (needed != kNone) judgement.explained_by = kDriftClasses[needed].name;
  if (needed <= options.declared) {
    judgement.verdict = forked ? ForkVerdict::tie : ForkVerdict::same;
    if (static_cast<int64_t>(evidence.steps.size()) < options.min_steps) {
      judgement.verdict = ForkVerdict::mistrusted;
      judgement.reason =
          fmt::format("{} steps were compared, need {}", evidence.steps.size(), options.min_steps);
    }
    return judgement;
  }
  judgement.verdict = needed <= options.coarsest ? ForkVerdict::drift : ForkVerdict::defect;
  judgement.reason = local.reason;
  if (local.reason.empty() && !evidence.steps.empty()) {
    judgement.reason = fmt::format(
        "margins are off by {:.3g} standard deviations of {} (root mean square), most at {}",
        sigmas.rms, kDriftClasses[options.declared].name, words(evidence.steps[sigmas.worst_at]));
  }
  return judgement;
}

ForkJudgement merge_judgements(const std::vector<ForkJudgement>& judgements) {
  ForkJudgement merged;
  merged.verdict = judgements.empty() ? ForkVerdict::mistrusted : ForkVerdict::same;
  if (judgements.empty()) merged.reason = "no prompt was compared";
  for (const ForkJudgement& one : judgements) {
    if (one.verdict > merged.verdict) {
      merged.verdict = one.verdict;
      merged.reason = one.reason;
      merged.culprit = one.culprit;
      merged.explained_by = one.explained_by;
    }
    if (merged.culprit.empty()) merged.culprit = one.culprit;
    if (merged.reason.empty()) merged.reason = one.reason;
    merged.worst_sigmas = std::max(merged.worst_sigmas, one.worst_sigmas);
    merged.rms_sigmas = std::max(merged.rms_sigmas, one.rms_sigmas);
  }
  return merged;
}

}  // namespace lockstep
