#include "validation/compare/draft_judge.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

// Steps up to which the engine's tokens are the oracle's.
int64_t common_steps(const OraclePrompt& oracle, const EngineResult& engine) {
  const size_t n = std::min(oracle.greedy.size(), engine.ids.size());
  const auto end = oracle.greedy.begin() + static_cast<std::ptrdiff_t>(n);
  return std::mismatch(oracle.greedy.begin(), end, engine.ids.begin()).first -
         oracle.greedy.begin();
}

// How many of a round's drafts are the tokens that follow.
int64_t accepted_prefix(const std::vector<int32_t>& drafts, const std::vector<int32_t>& tokens,
                        int64_t step) {
  int64_t n = 0;
  for (const int32_t draft : drafts) {
    const auto at = static_cast<size_t>(step + 1 + n);
    if (at >= tokens.size() || tokens[at] != draft) break;
    ++n;
  }
  return n;
}

void found(DraftReport& report, const std::string& place, const std::string& reason) {
  report.verdict = Verdict::fail;
  if (!report.first_bad.empty()) return;
  report.first_bad = place;
  report.reason = place + ": " + reason;
}

}  // namespace

DraftReport judge_drafts(const OraclePrompt& oracle, const EngineResult& engine) {
  DraftReport report;
  const int64_t n_common = common_steps(oracle, engine);
  int64_t n_accepted = 0;
  for (const DraftRound& round : engine.draft_rounds) {
    n_accepted += accepted_prefix(round.drafts, engine.ids, round.step);
    const bool held = round.step >= 0 && round.step < n_common &&
                      round.step < static_cast<int64_t>(oracle.mtp_drafts.size());
    if (!held) continue;
    const std::vector<int32_t>& expected = oracle.mtp_drafts[static_cast<size_t>(round.step)];
    const size_t n = std::min(expected.size(), round.drafts.size());
    ++report.n_rounds;
    for (size_t i = 0; i < n; ++i) {
      ++report.n_judged;
      if (round.drafts[i] == expected[i]) {
        ++report.n_match;
      } else {
        found(report, fmt::format("drafts[{}]", round.step),
              fmt::format("draft {} is {}, the oracle's is {}", i, round.drafts[i], expected[i]));
      }
    }
    report.n_accepted += accepted_prefix(round.drafts, engine.ids, round.step);
  }
  if (n_accepted != engine.drafts_accepted) {
    found(report, "drafts",
          fmt::format("the engine counts {} accepted drafts, its rounds show {}",
                      engine.drafts_accepted, n_accepted));
  }
  return report;
}

}  // namespace lockstep
