#include "bench/gate/pace.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/philox.h"

namespace lockstep {
namespace {

constexpr size_t kMostValues = 62;  // 2^62 signs fit a number

// P(at most n_seen of n) for a share p.
double binomial_below(int64_t n_seen, int64_t n, double p) {
  double sum = 0;
  for (int64_t k = 0; k <= n_seen; ++k) {
    const double ways = std::lgamma(static_cast<double>(n) + 1) -
                        std::lgamma(static_cast<double>(k) + 1) -
                        std::lgamma(static_cast<double>(n - k) + 1);
    const double chance =
        static_cast<double>(k) * std::log(p) + static_cast<double>(n - k) * std::log1p(-p);
    sum += std::exp(ways + chance);
  }
  return sum;
}

// The share at which `chance`, which falls as it grows, is `wanted`.
template <typename Function>
double share_where(Function chance, double wanted) {
  double low = 0;
  double high = 1;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (chance(middle) > wanted ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::vector<double> shifted(std::vector<double> values, double sign, double shift) {
  for (double& value : values) value = sign * value - shift;
  return values;
}

}  // namespace

const char* pace_name(PaceVerdict verdict) {
  switch (verdict) {
    case PaceVerdict::same:
      return "SAME";
    case PaceVerdict::faster:
      return "FASTER";
    case PaceVerdict::slower:
      return "SLOWER";
    case PaceVerdict::ambiguous:
      break;
  }
  return "AMBIGUOUS";
}

double PaceQuad::difference() const {
  return (std::log(b[0]) + std::log(b[1]) - std::log(a[0]) - std::log(a[1])) / 2;
}

std::array<bool, 4> quad_order(uint64_t seed, int quad) {
  const bool first = PhiloxStream(seed, static_cast<uint64_t>(quad)).next_below(2) == 1;
  return {first, !first, !first, first};
}

double signed_rank_p(const std::vector<double>& values) {
  LOCKSTEP_CHECK(values.size() <= kMostValues);
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return std::fabs(values[i]) < std::fabs(values[j]); });
  size_t rank_sum = 0;
  for (size_t rank = 1; rank <= order.size(); ++rank) {
    if (values[order[rank - 1]] > 0) rank_sum += rank;
  }
  // How many of the 2^n signs have each rank sum.
  const size_t most = values.size() * (values.size() + 1) / 2;
  std::vector<double> ways(most + 1);
  ways[0] = 1;
  for (size_t rank = 1; rank <= values.size(); ++rank) {
    for (size_t sum = most; sum >= rank; --sum) ways[sum] += ways[sum - rank];
  }
  const double above =
      std::accumulate(ways.begin() + static_cast<std::ptrdiff_t>(rank_sum), ways.end(), 0.0);
  return above / std::exp2(static_cast<double>(values.size()));
}

PaceVerdict judge_pace(const std::vector<double>& differences, const PaceRule& rule, double alpha) {
  const double of_look = alpha / static_cast<double>(rule.looks.size());
  const double margin = std::log1p(rule.margin);
  const auto proven = [&](double sign, double shift) {
    return signed_rank_p(shifted(differences, sign, shift)) < of_look;
  };
  if (proven(1, margin)) return PaceVerdict::slower;
  if (proven(-1, margin)) return PaceVerdict::faster;
  if (proven(-1, -std::log1p(rule.found))) return PaceVerdict::same;
  return PaceVerdict::ambiguous;
}

Interval share_interval(int64_t n_seen, int64_t n) {
  LOCKSTEP_CHECK(n > 0 && n_seen >= 0 && n_seen <= n);
  constexpr double kTail = 0.025;
  Interval interval{0, 1};
  if (n_seen < n) {
    interval.high = share_where([&](double p) { return binomial_below(n_seen, n, p); }, kTail);
  }
  if (n_seen > 0) {
    interval.low =
        share_where([&](double p) { return binomial_below(n_seen - 1, n, p); }, 1 - kTail);
  }
  return interval;
}

}  // namespace lockstep
