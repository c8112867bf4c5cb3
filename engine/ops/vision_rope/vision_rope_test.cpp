#include "engine/ops/vision_rope/vision_rope.h"

#include <gtest/gtest.h>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/rope/rope.h"

namespace lockstep {
namespace {

using namespace op_test;

struct Problem {
  Problem(int width, Rounding round) : head_dim(width), rounding(round) {
    for (int row = 0; row < 9; ++row) {
      for (int column = 0; column < 5; ++column) positions.push_back({row, 40 * column});
    }
    stride = 3 * n_heads * head_dim;
    x = random_floats(3, stride * n_tokens(), 2.0f, round);
    inv_freq = rope_inverse_frequencies(10000.0, head_dim / 2);
  }
  int64_t n_tokens() const { return static_cast<int64_t>(positions.size()); }
  VisionRopeArgs args(std::vector<float>& values) const {
    return {values.data(), stride,  positions.data(), inv_freq.data(),
            n_tokens(),    n_heads, head_dim,         rounding};
  }
  int head_dim;
  Rounding rounding;
  int n_heads = 3;
  int64_t stride = 0;
  std::vector<GridPosition> positions;
  std::vector<float> x, inv_freq;
};

std::vector<float> run(const Problem& problem, int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> out = problem.x;
  vision_rope(problem.args(out), pool);
  return out;
}

double judge(const Problem& problem, const std::vector<float>& out) {
  std::vector<float> x = problem.x;
  const int64_t width = int64_t{problem.n_heads} * problem.head_dim;
  std::vector<double> want(static_cast<size_t>(problem.n_tokens() * width));
  vision_rope_oracle(problem.args(x), want.data());
  std::vector<float> dense;
  std::vector<double> bound;
  for (int64_t t = 0; t < problem.n_tokens(); ++t) {
    for (int64_t i = 0; i < width; ++i) {
      const int64_t half = problem.head_dim / 2;
      const int64_t partner = i % problem.head_dim < half ? i + half : i - half;
      const float* row = problem.x.data() + t * problem.stride;
      dense.push_back(out[static_cast<size_t>(t * problem.stride + i)]);
      const double error =
          tolerance::kRopeCondition * (std::fabs(double{row[i]}) + std::fabs(double{row[partner]}));
      bound.push_back(
          tolerance::with_output_rounding(want[dense.size() - 1], error, problem.rounding));
    }
  }
  return worst_ratio(dense, want, bound);
}

TEST(VisionRope, StaysWithinTheDerivedBound) {
  for (const int head_dim : {64, 72, 8}) {
    for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
      const Problem problem(head_dim, rounding);
      const std::vector<float> out = run(problem);
      EXPECT_LE(judge(problem, out), 1.0) << head_dim;
      EXPECT_TRUE(same_bits(run(problem, 2), out));
      for (int64_t t = 0; t < problem.n_tokens(); ++t) {
        for (int64_t i = 3 * head_dim; i < problem.stride; ++i) {
          const auto at = static_cast<size_t>(t * problem.stride + i);
          ASSERT_EQ(out[at], problem.x[at]) << "beyond the heads";
        }
      }
    }
  }
}

TEST(VisionRopeMutant, RowsAndColumnsExchangedAreFound) {
  const Problem problem(72, Rounding::bf16);
  Problem mutant = problem;
  for (GridPosition& position : mutant.positions) std::swap(position[0], position[1]);
  EXPECT_GT(judge(problem, run(mutant)), 1.0);
}

TEST(VisionRopeMutant, AnotherFrequencyIsFound) {
  const Problem problem(64, Rounding::none);
  Problem mutant = problem;
  mutant.inv_freq = rope_inverse_frequencies(10000.0, 64);
  EXPECT_GT(judge(problem, run(mutant)), 1.0);
}

}  // namespace
}  // namespace lockstep
