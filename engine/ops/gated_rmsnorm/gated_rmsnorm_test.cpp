#include "engine/ops/gated_rmsnorm/gated_rmsnorm.h"

#include <gtest/gtest.h>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

struct Problem {
  Problem(int64_t rows, int64_t columns, Rounding round, float scale = 2.0f)
      : n_rows(rows),
        width(columns),
        rounding(round),
        x(random_floats(11, rows * columns, scale, round)),
        z(random_floats(12, rows * columns, 8.0f, round)),
        weight(random_floats(13, columns, 1.5f, round)) {}

  GatedRmsNormArgs args(float* out) const {
    return {x.data(), z.data(), weight.data(), out, n_rows, width, eps, rounding};
  }

  int64_t n_rows;
  int64_t width;
  Rounding rounding;
  float eps = 1e-6f;
  std::vector<float> x;
  std::vector<float> z;
  std::vector<float> weight;
};

// The output with three guard values behind it, checked here for every run of these tests.
std::vector<float> run(const Problem& problem, int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> out(problem.x.size() + 3, kGuard);
  gated_rmsnorm(problem.args(out.data()), pool);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(out.back(), kGuard);
    out.pop_back();
  }
  return out;
}

double judge(const Problem& problem, const std::vector<float>& out) {
  std::vector<double> want(problem.x.size());
  gated_rmsnorm_oracle(problem.args(nullptr), want.data());
  std::vector<double> bound;
  for (const double value : want) {
    const double error = std::fabs(value) * tolerance::gated_rmsnorm_relative(problem.width);
    bound.push_back(tolerance::with_output_rounding(value, error, problem.rounding));
  }
  return worst_ratio(out, want, bound);
}

TEST(GatedRmsNorm, StaysWithinTheDerivedBound) {
  on_every_target([](const std::string& target) {
    for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
      for (const int64_t width : {16, 48, 128, 1024}) {
        for (const float scale : {1e-4f, 1e-3f, 2.0f, 1e4f}) {
          const Problem problem(5, width, rounding, scale);
          const std::vector<float> out = run(problem);
          EXPECT_LE(judge(problem, out), 1.0) << target << " width " << width << " scale " << scale;
          if (rounding == Rounding::bf16) {
            EXPECT_TRUE(all_bf16(out));
          }
        }
      }
    }
  });
}

TEST(GatedRmsNorm, IsExactWhereEveryStepIs) {
  // Root 4; silu(0) = 0; silu of a large gate is the gate itself.
  Problem problem(1, 16, Rounding::none);
  problem.eps = 0.0f;
  problem.x.assign(16, -4.0f);
  problem.weight.assign(16, 0.25f);
  for (size_t i = 0; i < 16; ++i) problem.z[i] = i % 2 == 0 ? 0.0f : 64.0f;
  const std::vector<float> out = run(problem);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? 0.0f : -16.0f);
}

TEST(GatedRmsNorm, ThreadsAndInstructionSetsGiveTheSameBits) {
  const Problem problem(200, 128, Rounding::none);
  const std::vector<float> want = run(problem);
  on_every_target([&](const std::string& target) {
    EXPECT_TRUE(same_bits(run(problem, 1), want)) << target;
    EXPECT_TRUE(same_bits(run(problem, 2), want)) << target;
  });
}

TEST(GatedRmsNorm, OutMayBeX) {
  Problem problem(3, 64, Rounding::bf16);
  const std::vector<float> want = run(problem);
  ThreadPool pool(1);
  gated_rmsnorm(problem.args(problem.x.data()), pool);
  EXPECT_TRUE(same_bits(problem.x, want));
}

TEST(GatedRmsNorm, NanInXPoisonsItsRowAndNanInZItsValue) {
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    Problem problem(3, 16, rounding);
    problem.x[16 + 3] = std::numeric_limits<float>::quiet_NaN();
    problem.z[2] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = run(problem);
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(std::isnan(out[i]), i == 2 || i / 16 == 1) << i;
    }
  }
}

// Planted faults: each must leave the bound, in both precisions.
class GatedRmsNormMutant : public ::testing::TestWithParam<Rounding> {};
INSTANTIATE_TEST_SUITE_P(Precisions, GatedRmsNormMutant,
                         ::testing::Values(Rounding::none, Rounding::bf16));

TEST_P(GatedRmsNormMutant, GateBeforeNormIsFound) {
  const Problem problem(2, 128, GetParam());
  Problem mutant = problem;
  for (size_t i = 0; i < mutant.x.size(); ++i) {
    mutant.x[i] *= mutant.z[i] / (1.0f + std::exp(-mutant.z[i]));
    mutant.z[i] = 64.0f;  // silu(64) = 64: taken out again below
  }
  std::vector<float> out = run(mutant);
  for (float& value : out) value /= 64.0f;
  EXPECT_GT(judge(problem, out), 1.0);
}

TEST_P(GatedRmsNormMutant, SigmoidInPlaceOfSiluIsFound) {
  const Problem problem(2, 128, GetParam());
  std::vector<float> out = run(problem);
  for (size_t i = 0; i < out.size(); ++i) out[i] /= problem.z[i];
  EXPECT_GT(judge(problem, out), 1.0);
}

TEST_P(GatedRmsNormMutant, MissingEpsIsFound) {
  const Problem problem(2, 128, GetParam(), 1e-3f);
  Problem mutant = problem;
  mutant.eps = 0.0f;
  EXPECT_GT(judge(problem, run(mutant)), 1.0);
}

TEST_P(GatedRmsNormMutant, AWeightOffsetThatDoesNotBelongHereIsFound) {
  const Problem problem(2, 128, GetParam());
  Problem mutant = problem;
  for (float& weight : mutant.weight) weight += 1.0f;
  EXPECT_GT(judge(problem, run(mutant)), 1.0);
}

}  // namespace
}  // namespace lockstep
