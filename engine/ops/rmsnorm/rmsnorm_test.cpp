#include "engine/ops/rmsnorm/rmsnorm.h"

#include <gtest/gtest.h>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr int64_t kGap = 5;  // guard values between rows

struct Problem {
  Problem(int64_t rows, int64_t columns, Rounding round, float scale = 3.0f, uint64_t seed = 1)
      : n_rows(rows),
        width(columns),
        rounding(round),
        x(random_floats(seed, rows * (columns + kGap), scale, round)),
        weight(random_floats(seed + 1, columns, 0.7f, round)) {}

  RmsNormArgs args(std::vector<float>& out) const {
    return {x.data(), width + kGap, weight.data(), out.data(), width + kGap,
            n_rows,   width,        eps,           1.0f,       rounding};
  }
  std::vector<float> guarded() const { return std::vector<float>(x.size(), kGuard); }

  int64_t n_rows;
  int64_t width;
  Rounding rounding;
  float eps = 1e-6f;
  std::vector<float> x;
  std::vector<float> weight;
};

std::vector<float> dense_rows(const Problem& problem, const std::vector<float>& padded) {
  std::vector<float> dense;
  for (int64_t r = 0; r < problem.n_rows; ++r) {
    const auto first = padded.begin() + r * (problem.width + kGap);
    dense.insert(dense.end(), first, first + problem.width);
  }
  return dense;
}

std::vector<float> run(const Problem& problem, int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> out = problem.guarded();
  rmsnorm(problem.args(out), pool);
  return out;
}

// Worst violation of the derived bound by `out`, rows padded.
double judge(const Problem& problem, const std::vector<float>& out) {
  std::vector<float> unused;
  std::vector<double> want(static_cast<size_t>(problem.n_rows * problem.width));
  rmsnorm_oracle(problem.args(unused), want.data());
  std::vector<double> bound;
  for (const double value : want) {
    const double error = std::fabs(value) * tolerance::rmsnorm_relative(problem.width);
    bound.push_back(tolerance::with_output_rounding(value, error, problem.rounding));
  }
  return worst_ratio(dense_rows(problem, out), want, bound);
}

TEST(RmsNorm, StaysWithinTheDerivedBound) {
  on_every_target([](const std::string& target) {
    for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
      for (const int64_t width : {16, 32, 48, 128, 256, 2048, 5120}) {
        for (const float scale : {1e-4f, 1.0f, 1e4f}) {
          const Problem problem(3, width, rounding, scale, static_cast<uint64_t>(width));
          const std::vector<float> out = run(problem);
          EXPECT_LE(judge(problem, out), 1.0) << target << " width " << width << " scale " << scale;
          if (rounding == Rounding::bf16) {
            EXPECT_TRUE(all_bf16(dense_rows(problem, out)));
          }
        }
      }
    }
  });
}

TEST(RmsNorm, LeavesTheGapsBetweenRowsAlone) {
  const Problem problem(4, 48, Rounding::none);
  const std::vector<float> out = run(problem);
  for (int64_t r = 0; r < problem.n_rows; ++r) {
    for (int64_t i = 0; i < kGap; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(r * (48 + kGap) + 48 + i)], kGuard);
    }
  }
}

TEST(RmsNorm, IsExactWhereEveryStepIs) {
  // Mean square 4, root 2, inverse 0.5: each product is exact.
  Problem problem(1, 32, Rounding::none);
  problem.eps = 0.0f;
  for (size_t i = 0; i < problem.x.size(); ++i) problem.x[i] = i % 3 == 0 ? -2.0f : 2.0f;
  problem.weight.assign(32, 0.5f);
  const std::vector<float> out = run(problem);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 3 == 0 ? -1.5f : 1.5f);
}

TEST(RmsNorm, OneAndTwoThreadsGiveTheSameBits) {
  const Problem problem(9, 4096, Rounding::none);
  EXPECT_TRUE(same_bits(run(problem, 1), run(problem, 2)));
}

TEST(RmsNorm, InstructionSetsGiveTheSameBits) {
  for (const int64_t width : {16, 48, 5120}) {
    const Problem problem(2, width, Rounding::none);
    const std::vector<float> want = run(problem);
    on_every_target([&](const std::string& target) {
      EXPECT_TRUE(same_bits(run(problem), want)) << target << " width " << width;
    });
  }
}

TEST(RmsNorm, ARowDoesNotDependOnItsNeighbours) {
  const Problem all(5, 256, Rounding::bf16);
  const std::vector<float> together = dense_rows(all, run(all));
  for (int64_t r = 0; r < 5; ++r) {
    Problem one(1, 256, Rounding::bf16);
    const auto first = all.x.begin() + r * (256 + kGap);
    one.x.assign(first, first + 256 + kGap);
    one.weight = all.weight;
    const std::vector<float> alone = dense_rows(one, run(one));
    EXPECT_TRUE(same_bits(alone, std::span(together).subspan(static_cast<size_t>(r) * 256, 256)));
  }
}

TEST(RmsNorm, OutMayBeX) {
  Problem problem(3, 64, Rounding::bf16);
  const std::vector<float> want = dense_rows(problem, run(problem));
  ThreadPool pool(1);
  rmsnorm(problem.args(problem.x), pool);
  EXPECT_TRUE(same_bits(dense_rows(problem, problem.x), want));
}

TEST(RmsNorm, NanPoisonsItsRowAndNoOther) {
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    Problem problem(3, 32, rounding);
    problem.x[32 + kGap + 7] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = dense_rows(problem, run(problem));
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(std::isnan(out[i]), i / 32 == 1) << i;
    }
  }
}

TEST(RmsNorm, ARowOfZerosStaysZero) {
  Problem problem(1, 16, Rounding::none);
  problem.x.assign(problem.x.size(), 0.0f);
  const std::vector<float> out = run(problem);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(out[i], 0.0f);
}

// Planted faults: each must leave the bound.
TEST(RmsNormMutant, MissingEpsIsFound) {
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    const Problem problem(2, 256, rounding, 1e-3f);
    Problem mutant = problem;
    mutant.eps = 0.0f;
    EXPECT_GT(judge(problem, run(mutant)), 1.0);
  }
}

TEST(RmsNormMutant, ForgottenWeightOffsetIsFound) {
  const Problem problem(2, 256, Rounding::bf16);
  std::vector<float> out = problem.guarded();
  RmsNormArgs args = problem.args(out);
  args.weight_offset = 0.0f;
  ThreadPool pool(1);
  rmsnorm(args, pool);
  EXPECT_GT(judge(problem, out), 1.0);
}

TEST(RmsNormMutant, MeanOverOneValueTooFewIsFound) {
  const Problem problem(1, 256, Rounding::none);
  std::vector<float> out = run(problem);
  for (float& value : out) value *= std::sqrt(255.0f / 256.0f);
  EXPECT_GT(judge(problem, out), 1.0);
}

TEST(RmsNormMutant, AFewUlpsMoreThanTheBoundAreFound) {
  const Problem problem(1, 16, Rounding::none);
  std::vector<float> out = run(problem);
  for (float& value : out) value *= 1.0f + 12.0f * 0x1p-23f;
  EXPECT_GT(judge(problem, out), 1.0);
}

}  // namespace
}  // namespace lockstep
