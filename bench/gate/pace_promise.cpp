#include "bench/gate/pace_promise.h"

#include <fmt/core.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "engine/base/median.h"
#include "engine/base/philox.h"

namespace lockstep {
namespace {

constexpr double kMostFalseAlarms = 0.01;
constexpr double kLeastPower = 0.95;

double normal(PhiloxStream& random) {
  const double u = 1.0 - double{random.next_uniform()};
  const double angle = 2 * std::numbers::pi * double{random.next_uniform()};
  return std::sqrt(-2 * std::log(u)) * std::cos(angle);
}

// Seconds of processes in turn, about 1.
class NoisyProcesses {
 public:
  NoisyProcesses(const PaceNoise& noise, PhiloxStream& random) : noise_(noise), random_(random) {
    chain_ = noise_.drift * normal(random_);
  }
  double next(double mean) {
    const double fresh = std::sqrt(1 - noise_.memory * noise_.memory);
    chain_ = noise_.memory * chain_ + fresh * noise_.drift * normal(random_);
    double share = 1 + chain_ + noise_.white * normal(random_);
    share += noise_.process * normal(random_);
    const bool disturbed = double{random_.next_uniform()} < noise_.outlier_share;
    if (disturbed) share += noise_.outlier_size * double{random_.next_uniform()};
    return mean * share;
  }

 private:
  const PaceNoise& noise_;
  PhiloxStream& random_;
  double chain_ = 0;
};

// One gate of quads that `next` makes.
void count_gate(const std::function<double()>& next, const PaceRule& rule, PaceCount& count) {
  std::vector<double> differences;
  PaceVerdict verdict = PaceVerdict::ambiguous;
  for (const int look : rule.looks) {
    while (std::ssize(differences) < look) differences.push_back(next());
    verdict = judge_pace(differences, rule, rule.alpha);
    if (verdict != PaceVerdict::ambiguous) break;
  }
  ++count.n_gates;
  count.n_slower += verdict == PaceVerdict::slower ? 1 : 0;
  count.n_ambiguous += verdict == PaceVerdict::ambiguous ? 1 : 0;
  count.mean_quads += (static_cast<double>(differences.size()) - count.mean_quads) /
                      static_cast<double>(count.n_gates);
}

}  // namespace

const std::vector<PaceNoise>& pace_noises() {
  static const std::vector<PaceNoise> noises = {
      {"white", 0.003, 0, 0, 0, 0.01, 0.1},
      {"drift", 0.003, 0.005, 0.98, 0, 0.01, 0.1},
      {"drift, offsets of processes", 0.003, 0.005, 0.98, 0.004, 0.01, 0.1},
      {"strong drift, offsets", 0.003, 0.02, 0.98, 0.004, 0.01, 0.1},
  };
  return noises;
}

PaceCount simulate_gates(const PaceNoise& noise, double slowdown, int64_t n_gates, uint64_t seed,
                         const PaceRule& rule) {
  PaceCount count;
  for (int64_t gate = 0; gate < n_gates; ++gate) {
    PhiloxStream random(seed, static_cast<uint64_t>(gate) + 1);
    NoisyProcesses processes(noise, random);
    int quad = 0;
    count_gate(
        [&] {
          PaceQuad times{};
          size_t n_a = 0;
          size_t n_b = 0;
          for (const bool is_b : quad_order(seed + static_cast<uint64_t>(gate), quad++)) {
            const double seconds = processes.next(is_b ? 1 + slowdown : 1.0);
            (is_b ? times.b[n_b++] : times.a[n_a++]) = seconds;
          }
          return times.difference();
        },
        rule, count);
  }
  return count;
}

PaceCount resample_gates(const std::vector<double>& differences, double slowdown, int64_t n_gates,
                         uint64_t seed, const PaceRule& rule) {
  const double middle = median(differences);
  const auto n = static_cast<uint32_t>(differences.size());
  PhiloxStream random(seed, 2);
  PaceCount count;
  for (int64_t gate = 0; gate < n_gates; ++gate) {
    count_gate(
        [&] {
          const double noise = differences[random.next_below(n)] - middle;
          return std::log1p(slowdown) + (random.next_below(2) == 0 ? noise : -noise);
        },
        rule, count);
  }
  return count;
}

std::vector<SelfTestRow> self_test(int64_t n_gates, uint64_t seed, const PaceRule& rule) {
  std::vector<SelfTestRow> rows;
  for (const PaceNoise& noise : pace_noises()) {
    for (const double slowdown : {0.0, rule.found / 2, rule.found, 2 * rule.found}) {
      rows.push_back({noise.name, slowdown, simulate_gates(noise, slowdown, n_gates, seed, rule)});
    }
  }
  return rows;
}

std::string broken_promise(const std::vector<SelfTestRow>& rows, const PaceRule& rule) {
  for (const SelfTestRow& row : rows) {
    const double share = row.count.slower_share();
    if (row.slowdown == 0.0 && share > kMostFalseAlarms) {
      return fmt::format("{}: {:.2f} % of equal builds are called slower", row.noise, 100 * share);
    }
    if (row.slowdown == rule.found && share < kLeastPower) {
      return fmt::format("{}: a slowdown of {:.1f} % is found in {:.1f} %", row.noise,
                         100 * row.slowdown, 100 * share);
    }
  }
  return {};
}

}  // namespace lockstep
