#include "engine/ops/gdn_gates/gdn_gates.h"

#include <gtest/gtest.h>

#include <utility>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr int64_t kTokens = 400;
constexpr int kHeads = 24;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Problem {
  explicit Problem(float scale = 6.0f)
      : a(random_floats(71, kTokens * kHeads, scale)),
        b(random_floats(72, kTokens * kHeads, scale)),
        a_log(random_floats(73, kHeads, 2.5f)),
        dt_bias(random_floats(74, kHeads, 3.0f)) {}

  GdnGatesArgs args(float* log_decay, float* beta) const {
    return {a.data(), b.data(), a_log.data(), dt_bias.data(), log_decay, beta, kTokens, kHeads};
  }

  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> a_log;
  std::vector<float> dt_bias;
};

struct Gates {
  std::vector<float> log_decay;
  std::vector<float> beta;
};

Gates run(const Problem& problem) {
  const size_t n = problem.a.size();
  Gates gates{std::vector<float>(n + 1, kGuard), std::vector<float>(n + 1, kGuard)};
  gdn_gates(problem.args(gates.log_decay.data(), gates.beta.data()));
  EXPECT_EQ(gates.log_decay[n], kGuard);
  EXPECT_EQ(gates.beta[n], kGuard);
  gates.log_decay.pop_back();
  gates.beta.pop_back();
  return gates;
}

double ratio(const std::vector<float>& got, const std::vector<double>& want) {
  std::vector<double> bound;
  for (const double value : want) {
    bound.push_back(std::fabs(value) * tolerance::kGdnGatesRelative + tolerance::kFloatTiny);
  }
  return worst_ratio(got, want, bound);
}

struct Ratios {
  double log_decay;
  double beta;
};

Ratios judge(const Problem& problem, const Gates& gates) {
  std::vector<double> log_decay(problem.a.size());
  std::vector<double> beta(problem.a.size());
  gdn_gates_oracle(problem.args(nullptr, nullptr), log_decay.data(), beta.data());
  return {ratio(gates.log_decay, log_decay), ratio(gates.beta, beta)};
}

TEST(GdnGates, StayWithinOneRoundingOfTheOracle) {
  for (const float scale : {1e-3f, 6.0f, 40.0f, 120.0f}) {
    const Problem problem(scale);
    const Ratios ratios = judge(problem, run(problem));
    EXPECT_LE(ratios.log_decay, 1.0) << scale;
    EXPECT_LE(ratios.beta, 1.0) << scale;
  }
}

TEST(GdnGates, StayInRange) {
  const Problem problem(40.0f);
  const Gates gates = run(problem);
  for (size_t i = 0; i < gates.beta.size(); ++i) {
    EXPECT_LE(gates.log_decay[i], 0.0f);
    EXPECT_GE(gates.beta[i], 0.0f);
    EXPECT_LE(gates.beta[i], 1.0f);
  }
}

TEST(GdnGates, KnownValues) {
  Problem problem;
  problem.a_log.assign(kHeads, 0.0f);
  problem.dt_bias.assign(kHeads, 1.0f);
  problem.a[0] = -1.0f;  // softplus(0) = ln 2
  problem.a[1] = 24.0f;  // above 20: the argument itself
  problem.a[2] = -std::numeric_limits<float>::infinity();
  problem.a[3] = std::numeric_limits<float>::infinity();
  problem.a[4] = -61.0f;  // 1 + exp(-60) is 1 in float64; log1p must still see exp(-60)
  problem.b[0] = 0.0f;
  problem.b[1] = 1000.0f;
  problem.b[2] = -1000.0f;
  const Gates gates = run(problem);
  EXPECT_EQ(gates.log_decay[0], -0.693147182464599609375f);
  EXPECT_EQ(gates.log_decay[1], -25.0f);
  EXPECT_EQ(gates.log_decay[2], 0.0f);
  EXPECT_EQ(gates.log_decay[3], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(gates.log_decay[4], static_cast<float>(-std::exp(-60.0L)));
  EXPECT_EQ(gates.beta[0], 0.5f);
  EXPECT_EQ(gates.beta[1], 1.0f);
  EXPECT_EQ(gates.beta[2], 0.0f);
}

TEST(GdnGates, NanStaysWhereItBelongs) {
  Problem problem;
  problem.a[5] = kNan;
  problem.b[6] = kNan;
  problem.dt_bias[7] = kNan;
  problem.a_log[8] = kNan;
  const Gates gates = run(problem);
  for (size_t i = 0; i < problem.a.size(); ++i) {
    const size_t head = i % kHeads;
    EXPECT_EQ(std::isnan(gates.log_decay[i]), i == 5 || head == 7 || head == 8) << i;
    EXPECT_EQ(std::isnan(gates.beta[i]), i == 6) << i;
  }
}

TEST(GdnGates, InstructionSetsGiveTheSameBits) {
  const Problem problem;
  const Gates want = run(problem);
  on_every_target([&](const std::string& target) {
    const Gates got = run(problem);
    EXPECT_TRUE(same_bits(got.log_decay, want.log_decay)) << target;
    EXPECT_TRUE(same_bits(got.beta, want.beta)) << target;
  });
}

// Planted faults: each must leave the bound.
TEST(GdnGatesMutant, ForgottenDtBiasIsFound) {
  const Problem problem;
  Problem mutant = problem;
  mutant.dt_bias.assign(kHeads, 0.0f);
  EXPECT_GT(judge(problem, run(mutant)).log_decay, 1.0);
}

TEST(GdnGatesMutant, ExchangedAAndBAreFound) {
  const Problem problem;
  Problem mutant = problem;
  std::swap(mutant.a, mutant.b);
  EXPECT_GT(judge(problem, run(mutant)).log_decay, 1.0);
  EXPECT_GT(judge(problem, run(mutant)).beta, 1.0);
}

TEST(GdnGatesMutant, NaiveLog1pIsFound) {
  const Problem problem(40.0f);
  Gates gates = run(problem);
  for (size_t i = 0; i < gates.log_decay.size(); ++i) {
    const size_t head = i % kHeads;
    const float x = problem.a[i] + problem.dt_bias[head];
    gates.log_decay[i] = -std::exp(problem.a_log[head]) * std::log(1.0f + std::exp(x));
  }
  EXPECT_GT(judge(problem, gates).log_decay, 1.0);
}

TEST(GdnGatesMutant, RoundingToBf16IsFound) {
  const Problem problem;
  Gates gates = run(problem);
  for (float& beta : gates.beta) beta = round_to_bf16(beta);
  EXPECT_GT(judge(problem, gates).beta, 1.0);
}

}  // namespace
}  // namespace lockstep
