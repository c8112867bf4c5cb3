#include "validation/exam/paired.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr double kZ95 = 1.6448536269514722;
constexpr double kAlpha = 0.05;
constexpr double kPower = 0.8;

// log of the binomial probability of k in n at p in (0, 1).
double log_binomial(int64_t n, int64_t k, double p) {
  const auto dn = static_cast<double>(n);
  const auto dk = static_cast<double>(k);
  return std::lgamma(dn + 1) - std::lgamma(dk + 1) - std::lgamma(dn - dk + 1) + dk * std::log(p) +
         (dn - dk) * std::log1p(-p);
}

// P(X >= k) for X binomial (n, 1/2).
double upper_half(int64_t n, int64_t k) {
  double sum = 0;
  for (int64_t i = k; i <= n; ++i) sum += std::exp(log_binomial(n, i, 0.5));
  return std::min(sum, 1.0);
}

// Tango's statistic for the hypothesis that the drop is `delta`.
double tango_z(double n, double lost, double gained, double delta) {
  const double a = 2 * n;
  const double b = -lost - gained + (2 * n - lost + gained) * delta;
  const double c = -gained * delta * (1 - delta);
  const double q = (std::sqrt(std::max(0.0, b * b - 4 * a * c)) - b) / (2 * a);
  const double variance = n * (2 * q + delta * (1 - delta));
  const double difference = lost - gained - n * delta;
  if (variance <= 0) return difference == 0 ? 0 : std::copysign(1e9, difference);
  return difference / std::sqrt(variance);
}

// The delta in [low, high] at which the falling statistic meets `z`.
double solve(double n, double lost, double gained, double z, double low, double high) {
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (tango_z(n, lost, gained, middle) > z ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Probability that a one-sided exact test sees a drop, when questions are lost with probability p
// and gained with probability q.
double power(int64_t n, double p, double q) {
  std::vector<double> gained;
  for (int64_t k = 0; k <= n; ++k) {
    gained.push_back(std::exp(log_binomial(n, k, q)));
    if (static_cast<double>(k) > n * q && gained.back() < 1e-9) break;
  }
  double total = 0;
  for (int64_t lost = 0; lost <= n; ++lost) {
    const double probability = std::exp(log_binomial(n, lost, p));
    if (static_cast<double>(lost) > n * p && probability < 1e-9) break;
    if (probability < 1e-12) continue;
    for (size_t g = 0; g < gained.size(); ++g) {
      const auto other = static_cast<int64_t>(g);
      if (other >= lost) break;
      if (upper_half(lost + other, lost) <= kAlpha) total += probability * gained[g];
    }
  }
  return total;
}

}  // namespace

std::string_view paired_verdict_name(PairedVerdict verdict) {
  switch (verdict) {
    case PairedVerdict::same:
      return "SAME";
    case PairedVerdict::better:
      return "BETTER";
    case PairedVerdict::worse:
      return "WORSE";
    case PairedVerdict::undecided:
      return "UNDECIDED";
  }
  LOCKSTEP_CHECK(false);
  return {};
}

ExitCode exit_code_of(PairedVerdict verdict) {
  switch (verdict) {
    case PairedVerdict::same:
    case PairedVerdict::better:
      return ExitCode::pass;
    case PairedVerdict::worse:
      return ExitCode::fail;
    case PairedVerdict::undecided:
      return ExitCode::could_not_judge;
  }
  LOCKSTEP_CHECK(false);
  return ExitCode::fail;
}

double mcnemar_p(int64_t lost, int64_t gained) {
  const int64_t n = lost + gained;
  if (n == 0) return 1;
  return std::min(1.0, 2 * upper_half(n, std::max(lost, gained)));
}

Interval tango_interval(int64_t n, int64_t lost, int64_t gained, double z) {
  const auto dn = static_cast<double>(n);
  const auto dl = static_cast<double>(lost);
  const auto dg = static_cast<double>(gained);
  const double drop = (dl - dg) / dn;
  return {solve(dn, dl, dg, z, -1, drop), solve(dn, dl, dg, -z, drop, 1)};
}

double smallest_drop(int64_t n, int64_t lost, int64_t gained) {
  // Flips that are no drop; half a question each way where none was seen.
  const double noise = std::max(static_cast<double>(std::min(lost, gained)), 0.5) / n;
  double low = 0;
  double high = 1 - noise - 1e-9;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (power(n, noise + middle, noise) < kPower ? low : high) = middle;
  }
  return high;
}

PairedReport judge_pairs(int64_t n, int64_t lost, int64_t gained, double margin) {
  LOCKSTEP_CHECK(n > 0 && lost >= 0 && gained >= 0 && lost + gained <= n);
  PairedReport report;
  report.n = n;
  report.lost = lost;
  report.gained = gained;
  report.drop = static_cast<double>(lost - gained) / static_cast<double>(n);
  report.interval = tango_interval(n, lost, gained, kZ95);
  report.mcnemar_p = mcnemar_p(lost, gained);
  report.smallest_drop = smallest_drop(n, lost, gained);
  if (report.interval.low > -margin && report.interval.high < margin) {
    report.verdict = PairedVerdict::same;
  } else if (report.interval.low > 0) {
    report.verdict = PairedVerdict::worse;
  } else if (report.interval.high < 0) {
    report.verdict = PairedVerdict::better;
  }
  return report;
}

}  // namespace lockstep
