#include "engine/ops/layernorm/layernorm.h"

#include <gtest/gtest.h>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

struct Problem {
  Problem(int64_t rows, int64_t columns, Rounding round, float offset, uint64_t seed = 1)
      : n_rows(rows), width(columns), rounding(round) {
    x = random_floats(seed, rows * columns, 3.0f);
    for (float& value : x) value = round_to_bf16(value + offset);
    weight = random_floats(seed + 1, columns, 1.5f, Rounding::bf16);
    bias = random_floats(seed + 2, columns, 0.5f, Rounding::bf16);
  }

  LayerNormArgs args(std::vector<float>& out) const {
    return {x.data(), weight.data(), bias.data(), out.data(), n_rows, width, eps, rounding};
  }

  int64_t n_rows;
  int64_t width;
  Rounding rounding;
  float eps = 1e-6f;
  std::vector<float> x, weight, bias;
};

std::vector<float> run(const Problem& problem, int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> out(problem.x.size(), kGuard);
  layernorm(problem.args(out), pool);
  return out;
}

double judge(const Problem& problem, const std::vector<float>& out) {
  std::vector<float> unused;
  std::vector<double> want(out.size());
  std::vector<double> bound(out.size());
  layernorm_oracle(problem.args(unused), want.data(), bound.data());
  for (size_t i = 0; i < want.size(); ++i) {
    bound[i] = tolerance::with_output_rounding(want[i], bound[i], problem.rounding);
  }
  return worst_ratio(out, want, bound);
}

TEST(LayerNorm, StaysWithinTheDerivedBound) {
  on_every_target([](const std::string& target) {
    for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
      for (const int64_t width : {16, 128, 1152}) {
        for (const float offset : {0.0f, 2.0f, -100.0f}) {
          const Problem problem(3, width, rounding, offset, static_cast<uint64_t>(width));
          EXPECT_LE(judge(problem, run(problem)), 1.0) << target << " " << width << " " << offset;
        }
      }
    }
  });
}

TEST(LayerNorm, ThreadsAndInstructionSetsGiveTheSameBits) {
  const Problem problem(40, 1152, Rounding::none, 0.5f);
  const std::vector<float> want = run(problem);
  EXPECT_TRUE(same_bits(run(problem, 2), want));
  on_every_target(
      [&](const std::string& target) { EXPECT_TRUE(same_bits(run(problem), want)) << target; });
}

TEST(LayerNorm, OutMayBeX) {
  Problem problem(3, 64, Rounding::bf16, 1.0f);
  const std::vector<float> want = run(problem);
  ThreadPool pool(1);
  layernorm(problem.args(problem.x), pool);
  EXPECT_TRUE(same_bits(problem.x, want));
}

TEST(LayerNorm, ARowOfOneValueIsTheBias) {
  Problem problem(1, 32, Rounding::none, 0.0f);
  problem.x.assign(32, 4.0f);
  EXPECT_TRUE(same_bits(run(problem), problem.bias));
}

TEST(LayerNormMutant, MistakesLeaveTheBound) {
  const Problem problem(2, 128, Rounding::none, 2.0f);
  Problem mutant = problem;
  mutant.eps = 1e-3f;
  EXPECT_GT(judge(problem, run(mutant)), 1.0) << "eps";
  mutant = problem;
  std::swap(mutant.weight[3], mutant.weight[4]);
  EXPECT_GT(judge(problem, run(mutant)), 1.0) << "weights";
  std::vector<float> out = run(problem);
  for (size_t i = 0; i < out.size(); ++i) out[i] -= problem.bias[i % 128];
  EXPECT_GT(judge(problem, out), 1.0) << "bias left out";
  mutant = problem;
  for (float& value : mutant.x) value += 1e-3f;
  mutant.x[0] += 1e-2f;
  EXPECT_GT(judge(problem, run(mutant)), 1.0) << "an input";
}

}  // namespace
}  // namespace lockstep
