// Is build B slower than build A? Statistics of `lockstep bench gate`.
//
// The unit is a fresh process. Four in turn, A B B A or B A A B, make a quad, whose difference
//     d = mean of log(seconds of B) - mean of log(seconds of A)
// is free of any drift that is even over the four. Wilcoxon's signed-rank test, exact, compares the
// d of all quads with the borders of the three answers, at fixed numbers of quads; each look has an
// equal part of the error that may be made (Bonferroni), so stopping early costs no false alarms.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

enum class PaceVerdict : uint8_t { same, faster, slower, ambiguous };

const char* pace_name(PaceVerdict verdict);

struct PaceRule {
  double margin = 0.0025;                       // SLOWER and FASTER differ by more than this share
  double found = 0.01;                          // SAME: a slowdown of this share is ruled out
  double alpha = 0.01;                          // of each answer, over all looks
  std::array<int, 4> looks = {12, 16, 20, 24};  // quads
};

// Seconds of the four processes of a quad, two of each build.
struct PaceQuad {
  std::array<double, 2> a;
  std::array<double, 2> b;
  double difference() const;
};

// Order of a quad's four processes: true is B.
std::array<bool, 4> quad_order(uint64_t seed, int quad);

// P(rank sum of positive values >= the one seen) when values are symmetric about 0. At most 62
// values; a value of 0 counts as negative, equal sizes are ranked in their order.
double signed_rank_p(const std::vector<double>& values);

// The answer at this look, or ambiguous: go on, or give up at the last one. `alpha`: PaceRule's, or
// a part of it when several figures are judged.
PaceVerdict judge_pace(const std::vector<double>& differences, const PaceRule& rule, double alpha);

struct Interval {
  double low = 0;
  double high = 0;
};

// Clopper and Pearson's 95 % interval of a probability of which `n_seen` of `n` were seen.
Interval share_interval(int64_t n_seen, int64_t n);

}  // namespace lockstep
