#include "validation/compare/tap_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/error.h"
#include "validation/tolerance.h"

namespace lockstep {
namespace {

constexpr std::string_view kGdnState = ".gdn_state";

void add_summaries(const std::string& tap, const FloatTensor& state, TapMap& taps) {
  if (state.shape.size() != 3) {
    fail_with(ExitCode::could_not_judge, "tap {} has shape {}, need [head, dk, dv]", tap,
              state.shape_text());
  }
  const int64_t n_heads = state.shape[0];
  const int64_t dk = state.shape[1];
  const int64_t dv = state.shape[2];
  FloatTensor rowsum{{n_heads, dk}, {}};
  FloatTensor colsum{{n_heads, dv}, {}};
  FloatTensor norm{{n_heads}, {}};
  const float* value = state.values.data();
  for (int64_t head = 0; head < n_heads; ++head) {
    std::vector<double> columns(static_cast<size_t>(dv), 0.0);
    double squares = 0;
    for (int64_t row = 0; row < dk; ++row) {
      double sum = 0;
      for (double& column : columns) {
        const double x = *value++;
        sum += x;
        column += x;
        squares += x * x;
      }
      rowsum.values.push_back(static_cast<float>(sum));
    }
    for (const double column : columns) colsum.values.push_back(static_cast<float>(column));
    norm.values.push_back(static_cast<float>(std::sqrt(squares)));
  }
  taps.emplace(tap + "_rowsum", std::move(rowsum));
  taps.emplace(tap + "_colsum", std::move(colsum));
  taps.emplace(tap + "_norm", std::move(norm));
}

// Nothing when the oracle does not say how far bf16 may be off here.
std::optional<TensorLimit> limit_at(const OraclePrompt& oracle, const std::string& tap,
                                    Precision precision) {
  if (precision == Precision::fp32) {
    if (oracle.resized) return TensorLimit{.rel_l2 = tolerance::kFp32ResizedRelL2};
    const bool tower = tap == "vision_embeds";
    return TensorLimit{.rel_l2 = tower ? tolerance::kFp32VisionRelL2 : tolerance::kFp32RelL2};
  }
  if (tap == "vision_embeds" || tap == "image/embed") {
    // A row whose relative error is r has 1 - cos = r^2 / 2; single rows vary by a factor.
    constexpr double kLimit = tolerance::kBf16VisionRelL2;
    return TensorLimit{.rel_l2 = kLimit, .one_minus_cos = kLimit * kLimit};
  }
  const TapNoise* noise = oracle.noise_at(tap);
  if (noise == nullptr) return std::nullopt;
  return TensorLimit{
      .rel_l2 = std::max(tolerance::kBf16NoiseFactor * noise->rel_l2, tolerance::kBf16Floor),
      .one_minus_cos =
          std::max(tolerance::kBf16CosFactor * (1 - noise->cos), tolerance::kBf16Floor)};
}

void mark(TapRow& row, Verdict verdict, const std::string& reason) {
  if (merge(row.verdict, verdict) == row.verdict) return;
  row.verdict = verdict;
  row.reason = reason;
}

// Pixels are judged in codes of 8 bits, 2 / 255 of their range apart: where the picture kept its
// size all must be equal, after a resize a few may be a neighbour.
void judge_pixels(const OraclePrompt& oracle, const FloatTensor& expected,
                  const FloatTensor& engine, TapRow& row) {
  constexpr double kCode = 2.0 / 255.0;
  int64_t n_other = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double apart = std::fabs(double{engine.values[i]} - double{expected.values[i]}) / kCode;
    if (apart < 0.5) continue;
    ++n_other;
    if (!(apart < 1.5)) mark(row, Verdict::fail, fmt::format("a pixel is {:.3g} codes off", apart));
  }
  const double share = static_cast<double>(n_other) / static_cast<double>(expected.values.size());
  const double allowed = oracle.resized ? tolerance::kResizedCodeShare : 0.0;
  if (share > allowed) {
    mark(row, Verdict::fail,
         fmt::format("{:.3g} of the pixels have another code, {:.3g} may", share, allowed));
  }
}

TapRow judge_tap(const OraclePrompt& oracle, const std::string& tap, const FloatTensor& expected,
                 const TapMap& engine, Precision precision) {
  TapRow row;
  row.tap = tap;
  row.has_positions = !tap.starts_with("state/") && tap != "pixel_values";
  const auto found = engine.find(tap);
  if (found == engine.end()) {
    mark(row, Verdict::error, "the engine did not write this tap");
    return row;
  }
  row.diff = compare_tensors(found->second, expected);
  if (!row.diff.vacuous.empty()) {
    mark(row, Verdict::mistrusted, row.diff.vacuous);
    return row;
  }
  if (!row.diff.same_shape) {
    mark(row, Verdict::fail,
         fmt::format("shape {} instead of {}", found->second.shape_text(), expected.shape_text()));
    return row;
  }
  if (tap == "pixel_values") {
    judge_pixels(oracle, expected, found->second, row);
    return row;
  }
  const std::optional<TensorLimit> limit = limit_at(oracle, tap, precision);
  if (!limit) {
    mark(row, Verdict::mistrusted, "the oracle records no bf16_noise for this tap");
    return row;
  }
  row.limit = *limit;
  const std::string broken = violation(row.diff, row.limit);
  if (!broken.empty()) mark(row, Verdict::fail, broken);
  return row;
}

// Rows for what only the engine wrote, and marks on taps whose ranks differ.
void add_engine_side(const OraclePrompt& oracle, const TapMap& taps, const TapDump& engine,
                     std::map<std::string, TapRow, TapOrder>& rows) {
  for (const auto& [tap, unused] : taps) {
    if (oracle.taps.count(tap) != 0) continue;
    rows[tap].tap = tap;
    mark(rows[tap], Verdict::error, "the oracle has no such tap");
  }
  for (const std::string& tap : engine.rank_differences) {
    rows[tap].tap = tap;
    mark(rows[tap], Verdict::fail, "ranks differ at " + tap);
  }
}

void note_worst(const TapRow& row, PromptReport& report) {
  const bool compared = row.diff.same_shape && row.diff.vacuous.empty() && row.limit.rel_l2 > 0;
  if (!compared) return;
  if (report.worst_rel_tap.empty() || row.diff.rel_l2 > report.worst_rel_l2) {
    report.worst_rel_l2 = row.diff.rel_l2;
    report.worst_rel_tap = row.tap;
  }
  if (row.has_positions &&
      (report.worst_cos_tap.empty() || row.diff.worst_cos < report.worst_cos)) {
    report.worst_cos = row.diff.worst_cos;
    report.worst_cos_tap = row.tap;
  }
}

bool is_judged(const std::string& tap, Precision precision) {
  return precision == Precision::fp32 || !tap.starts_with("state/");
}

}  // namespace

TapMap summarise_states(TapMap taps) {
  std::vector<std::string> states;
  for (const auto& [tap, unused] : taps) {
    if (tap.ends_with(kGdnState)) states.push_back(tap);
  }
  for (const std::string& tap : states) {
    const auto node = taps.extract(tap);
    add_summaries(tap, node.mapped(), taps);
  }
  return taps;
}

std::string engine_tap(const std::string& oracle_tap) {
  const size_t at = oracle_tap.find(std::string(kGdnState) + "_");
  return oracle_tap.substr(0, at == std::string::npos ? at : at + kGdnState.size());
}

void judge_taps(const OraclePrompt& oracle, const TapDump& engine, Precision precision,
                PromptReport& report) {
  const TapMap taps = summarise_states(engine.taps);
  std::map<std::string, TapRow, TapOrder> rows;
  for (const auto& [tap, expected] : oracle.taps) {
    if (!is_judged(tap, precision)) continue;
    rows[tap] = judge_tap(oracle, tap, expected, taps, precision);
    const bool last = tap == "final_norm" || tap == "decode/final_norm";
    if (last && rows[tap].limit.rel_l2 > 0) report.n_positions += expected.n_rows();
  }
  add_engine_side(oracle, taps, engine, rows);
  for (auto& [tap, row] : rows) {
    note_worst(row, report);
    report.verdict = merge(report.verdict, row.verdict);
    if (row.verdict != Verdict::pass) {
      if (report.first_bad.empty()) report.first_bad = tap;
      report.reasons.push_back(tap + ": " + row.reason);
    }
    report.taps.push_back(std::move(row));
  }
  if (oracle.taps.count("final_norm") == 0 || oracle.taps.count("decode/final_norm") == 0) {
    report.verdict = merge(report.verdict, Verdict::mistrusted);
    report.reasons.push_back("the oracle lacks final_norm or decode/final_norm of this prompt");
  }
}

}  // namespace lockstep
