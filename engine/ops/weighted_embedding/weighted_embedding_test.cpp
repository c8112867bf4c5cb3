#include "engine/ops/weighted_embedding/weighted_embedding.h"

#include <gtest/gtest.h>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

struct Problem {
  explicit Problem(Rounding round) : rounding(round) {
    table = random_floats(4, n_rows * width, 1.0f, Rounding::bf16);
    PhiloxStream random(8);
    for (int t = 0; t < 50; ++t) {
      WeightedRows source{};
      for (size_t j = 0; j < 4; ++j) {
        source.rows[j] = static_cast<int32_t>(random.next_below(n_rows));
        source.weights[j] = random.next_uniform();
      }
      sources.push_back(source);
    }
  }
  WeightedEmbeddingArgs args(std::vector<float>& out) const {
    return {table.data(), n_rows, width, sources.data(), out.data(), 50, rounding};
  }
  Rounding rounding;
  int64_t n_rows = 30;
  int64_t width = 48;
  std::vector<float> table;
  std::vector<WeightedRows> sources;
};

std::vector<float> run(const Problem& problem, int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> out(50 * 48, kGuard);
  weighted_embedding(problem.args(out), pool);
  return out;
}

double judge(const Problem& problem, const std::vector<float>& out) {
  std::vector<float> unused;
  std::vector<double> want(out.size());
  std::vector<double> bound(out.size());
  weighted_embedding_oracle(problem.args(unused), want.data(), bound.data());
  for (size_t i = 0; i < want.size(); ++i) {
    bound[i] = tolerance::with_output_rounding(
        want[i], tolerance::kWeightedEmbeddingCondition * bound[i], problem.rounding);
  }
  return worst_ratio(out, want, bound);
}

TEST(WeightedEmbedding, StaysWithinTheDerivedBound) {
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    const Problem problem(rounding);
    EXPECT_LE(judge(problem, run(problem)), 1.0);
    EXPECT_TRUE(same_bits(run(problem, 2), run(problem)));
  }
}

TEST(WeightedEmbedding, AWholeWeightCopiesItsRow) {
  Problem problem(Rounding::none);
  for (WeightedRows& source : problem.sources) source.weights = {0.0f, 0.0f, 1.0f, 0.0f};
  const std::vector<float> out = run(problem);
  for (size_t i = 0; i < out.size(); ++i) {
    const auto row = static_cast<size_t>(problem.sources[i / 48].rows[2]);
    ASSERT_EQ(out[i], problem.table[row * 48 + i % 48]);
  }
}

TEST(WeightedEmbeddingMutant, TheNearestRowAloneIsFound) {
  const Problem problem(Rounding::bf16);
  Problem mutant = problem;
  for (WeightedRows& source : mutant.sources) source.weights = {1.0f, 0.0f, 0.0f, 0.0f};
  EXPECT_GT(judge(problem, run(mutant)), 1.0);
}

}  // namespace
}  // namespace lockstep
