#include "validation/compare/greedy_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "validation/tolerance.h"

namespace lockstep {
namespace {

struct Step {
  bool in_list = false;   // the oracle's token is among the engine's top logits
  int32_t other = -1;     // strongest id that is not the oracle's token
  double margin = 0;      // l'(token) - l'(other); an upper bound when the token is not in the list
  double logprob = 0;     // of the token; an upper bound likewise
  bool argmax_ok = true;  // the engine's token is the largest of its own logits, lowest id on ties
};

Step read_step(const StepLogits& logits, int32_t token, int32_t engine_token) {
  Step step;
  double value = logits.values.back();
  double other = 0;
  for (size_t i = 0; i < logits.ids.size(); ++i) {
    if (logits.ids[i] == token) {
      step.in_list = true;
      value = logits.values[i];
    } else if (step.other < 0) {
      step.other = logits.ids[i];
      other = logits.values[i];
    }
  }
  step.margin = value - other;
  step.logprob = value - logits.log_sum_exp;
  const double largest = *std::max_element(logits.values.begin(), logits.values.end());
  int32_t argmax = INT32_MAX;
  for (size_t i = 0; i < logits.ids.size(); ++i) {
    if (logits.values[i] == largest) argmax = std::min(argmax, logits.ids[i]);
  }
  step.argmax_ok = argmax == engine_token;
  return step;
}

// Keeps the first finding: the place where things went wrong, not where they ended.
void found(GreedyReport& report, Verdict verdict, const std::string& place,
           const std::string& reason) {
  report.verdict = merge(report.verdict, verdict);
  if (!report.first_bad.empty()) return;
  report.first_bad = place;
  report.reason = place + ": " + reason;
}

GreedyReport start(const OraclePrompt& oracle, const EngineResult& engine) {
  GreedyReport report;
  report.length = static_cast<int64_t>(oracle.greedy.size());
  for (size_t i = 0; i < std::min(oracle.greedy.size(), engine.ids.size()); ++i) {
    const bool same = oracle.greedy[i] == engine.ids[i];
    report.n_match += same ? 1 : 0;
    if (!same && report.first_mismatch < 0) report.first_mismatch = static_cast<int64_t>(i);
  }
  return report;
}

double worse(double worst, double error) {
  return error <= worst ? worst : error;
}  // NaN sticks

// Errors of one step go into the report; returns {margin error, logprob error}.
std::pair<double, double> note_errors(GreedyReport& report, const Step& step, double margin,
                                      double logprob) {
  const double margin_err = std::fabs(step.margin - margin);
  const double logprob_err = std::fabs(step.logprob - logprob);
  if (!std::isnan(report.worst_margin_err)) {
    report.worst_margin_err = worse(report.worst_margin_err, margin_err);
  }
  if (!std::isnan(report.worst_logprob_err)) {
    report.worst_logprob_err = worse(report.worst_logprob_err, logprob_err);
  }
  ++report.n_judged;
  return {margin_err, logprob_err};
}

void judge_own_argmax(GreedyReport& report, const Step& step, size_t i) {
  if (step.argmax_ok) return;
  found(report, Verdict::fail, fmt::format("greedy[{}]", i),
        "the engine's token is not the largest of its own logits");
}

void judge_length(GreedyReport& report, const OraclePrompt& oracle, const EngineResult& engine) {
  if (engine.ids.size() == oracle.greedy.size()) return;
  found(report, Verdict::fail,
        fmt::format("greedy[{}]", std::min(engine.ids.size(), oracle.greedy.size())),
        fmt::format("{} tokens instead of {}", engine.ids.size(), oracle.greedy.size()));
}

// The longest recorded final-norm row: they differ by a few percent only.
double hidden_norm(const OraclePrompt& oracle) {
  double largest = 0;
  for (const char* tap : {"final_norm", "decode/final_norm"}) {
    const auto at = oracle.taps.find(tap);
    if (at == oracle.taps.end()) continue;
    const FloatTensor& rows = at->second;
    for (int64_t row = 0; row < rows.n_rows(); ++row) {
      double sum = 0;
      for (int64_t i = 0; i < rows.row_length(); ++i) {
        const double x = rows.values[static_cast<size_t>(row * rows.row_length() + i)];
        sum += x * x;
      }
      largest = std::max(largest, std::sqrt(sum));
    }
  }
  return largest;
}

class MarginBound {
 public:
  MarginBound(const OraclePrompt& oracle, const LogitGeometry& geometry)
      : geometry_(geometry), norm_(hidden_norm(oracle)) {
    const TapNoise* noise = oracle.noise_at("final_norm");
    known_ = geometry.unavailable().empty() && noise != nullptr && norm_ > 0;
    if (known_) noise_ = noise->rel_l2;
  }

  bool known() const { return known_; }

  // Standard deviation of the margin between `token` and the stronger of two others.
  double sigma(int32_t token, int32_t second, int32_t other) const {
    return std::max(sigma_of_pair(token, second), sigma_of_pair(token, other));
  }

 private:
  // 0 for an id that the vocabulary does not hold: nothing is allowed there.
  double sigma_of_pair(int32_t a, int32_t b) const {
    const double distance = geometry_.row_distance(a, b).value_or(0);
    return tolerance::bf16_logit_sigma(distance, norm_, noise_, geometry_.hidden_size());
  }

  const LogitGeometry& geometry_;
  double norm_;
  double noise_ = 0;
  bool known_ = false;
};

// Margin errors of a prompt in standard deviations, summed up.
class MarginDrift {
 public:
  void add(double error, size_t step) {
    squares_ += error * error;
    ++n_;
    if (error <= worst_) return;
    worst_ = error;
    worst_step_ = step;
  }
  double rms() const { return n_ == 0 ? 0 : std::sqrt(squares_ / n_); }
  size_t worst_step() const { return worst_step_; }

 private:
  double squares_ = 0;
  double worst_ = 0;
  size_t worst_step_ = 0;
  int n_ = 0;
};

}  // namespace

GreedyReport judge_free_run(const OraclePrompt& oracle, const EngineResult& engine) {
  GreedyReport report = start(oracle, engine);
  for (size_t i = 0; i < std::min(oracle.greedy.size(), engine.ids.size()); ++i) {
    const Step step = read_step(engine.logits[i], oracle.greedy[i], engine.ids[i]);
    const auto [margin_err, logprob_err] =
        note_errors(report, step, oracle.margin[i], oracle.logprob[i]);
    judge_own_argmax(report, step, i);
    if (engine.ids[i] != oracle.greedy[i]) {
      report.max_margin_at_mismatch = oracle.margin[i];
      found(report, Verdict::fail, fmt::format("greedy[{}]", i),
            fmt::format("token {} instead of {} where the oracle's margin is {:.4g}", engine.ids[i],
                        oracle.greedy[i], oracle.margin[i]));
      break;
    }
    if (!(margin_err <= tolerance::kFp32Margin)) {
      found(report, Verdict::fail, fmt::format("margin[{}]", i),
            fmt::format("off by {:.3g} > {:.3g}", margin_err, tolerance::kFp32Margin));
    }
    if (!(logprob_err <= tolerance::kFp32Logprob)) {
      found(report, Verdict::fail, fmt::format("logprob[{}]", i),
            fmt::format("off by {:.3g} > {:.3g}", logprob_err, tolerance::kFp32Logprob));
    }
  }
  judge_length(report, oracle, engine);
  return report;
}

GreedyReport judge_forced_run(const OraclePrompt& oracle, const EngineResult& engine,
                              const LogitGeometry& geometry) {
  GreedyReport report = start(oracle, engine);
  const MarginBound bound(oracle, geometry);
  MarginDrift drift;
  for (size_t i = 0; i < std::min(oracle.greedy.size(), engine.ids.size()); ++i) {
    const int32_t token = oracle.greedy[i];
    const Step step = read_step(engine.logits[i], token, engine.ids[i]);
    const double error = note_errors(report, step, oracle.margin[i], oracle.logprob[i]).first;
    judge_own_argmax(report, step, i);
    const double sigma = bound.known() ? bound.sigma(token, oracle.second[i], step.other) : 0;
    if (bound.known()) drift.add(error / sigma, i);
    if (engine.ids[i] == token) continue;
    report.max_margin_at_mismatch = std::max(report.max_margin_at_mismatch, oracle.margin[i]);
    const std::string place = fmt::format("greedy[{}]", i);
    if (!bound.known()) {
      found(report, Verdict::mistrusted, place,
            geometry.unavailable() + ": no bound for another argmax can be derived");
    } else if (!(error <= tolerance::kBf16LogitSigmas * sigma)) {
      found(report, Verdict::fail, place,
            fmt::format(
                "token {} instead of {}, margin {:.4g} instead of {:.4g}: more than {:.3g} off",
                engine.ids[i], token, step.margin, oracle.margin[i],
                tolerance::kBf16LogitSigmas * sigma));
    }
  }
  report.margin_rms = drift.rms();
  if (!(report.margin_rms <= tolerance::kBf16MarginRms)) {
    found(report, Verdict::fail, fmt::format("margin[{}]", drift.worst_step()),
          fmt::format("margins are off by {:.3g} standard deviations (root mean square) > {:.3g}",
                      report.margin_rms, tolerance::kBf16MarginRms));
  }
  judge_length(report, oracle, engine);
  return report;
}

}  // namespace lockstep
