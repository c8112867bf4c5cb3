// Did it get worse? Two runs of the same questions, paired question by question.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/base/error.h"

namespace lockstep {

// SAME: the whole confidence interval of the drop lies inside the margin. WORSE, BETTER: it lies on
// one side of zero and reaches beyond the margin. UNDECIDED: none of these; ask more questions.
enum class PairedVerdict { same, better, worse, undecided };
std::string_view paired_verdict_name(PairedVerdict verdict);
// Of a program that was asked for this verdict: pass, fail or could not judge.
ExitCode exit_code_of(PairedVerdict verdict);

struct Interval {
  double low = 0;
  double high = 0;
};

struct PairedReport {
  int64_t n = 0;
  int64_t lost = 0;          // right before, not right now
  int64_t gained = 0;        // the other way round
  double drop = 0;           // (lost - gained) / n
  Interval interval;         // 90 % of the drop: each side is a one-sided test at 5 %
  double mcnemar_p = 1;      // exact, two-sided
  double smallest_drop = 0;  // seen with 80 % power at 5 % (one-sided), given as many other flips
  PairedVerdict verdict = PairedVerdict::undecided;
};

// `margin` as a share (0.02 = 2 points).
PairedReport judge_pairs(int64_t n, int64_t lost, int64_t gained, double margin);

// Exact two-sided binomial test of lost against gained at one half.
double mcnemar_p(int64_t lost, int64_t gained);
// Tango's score interval of (lost - gained) / n (Statistics in Medicine 17, 1998), z standard
// deviations wide on each side.
Interval tango_interval(int64_t n, int64_t lost, int64_t gained, double z);
double smallest_drop(int64_t n, int64_t lost, int64_t gained);

}  // namespace lockstep
