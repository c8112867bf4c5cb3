#include "engine/ops/vision_attention/vision_attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

struct Problem {
  Problem(int64_t tokens, int width, Rounding round, float scale_of_x = 1.5f)
      : n_tokens(tokens), head_dim(width), rounding(round) {
    stride = 3 * n_heads * head_dim;
    qkv = random_floats(9, stride * tokens, scale_of_x, round);
    scale = 1.0f / std::sqrt(static_cast<float>(width));
  }
  int64_t out_size() const { return n_tokens * n_heads * head_dim; }
  VisionAttentionArgs args(std::vector<float>& out) const {
    const int64_t part = int64_t{n_heads} * head_dim;
    return {qkv.data(), qkv.data() + part, qkv.data() + 2 * part,
            stride,     out.data(),        n_tokens,
            n_heads,    head_dim,          scale,
            rounding};
  }
  int64_t n_tokens;
  int head_dim;
  Rounding rounding;
  int n_heads = 2;
  int64_t stride = 0;
  float scale = 0.0f;
  std::vector<float> qkv;
};

std::vector<float> run(const Problem& problem, int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> out(static_cast<size_t>(problem.out_size()), kGuard);
  vision_attention(problem.args(out), pool);
  return out;
}

double judge(const Problem& problem, const std::vector<float>& out) {
  std::vector<float> unused;
  std::vector<double> want(out.size());
  std::vector<double> bound(out.size());
  vision_attention_oracle(problem.args(unused), want.data(), bound.data());
  for (size_t i = 0; i < want.size(); ++i) {
    bound[i] = tolerance::with_output_rounding(want[i], bound[i], problem.rounding);
  }
  return worst_ratio(out, want, bound);
}

TEST(VisionAttention, StaysWithinTheDerivedBound) {
  on_every_target([](const std::string& target) {
    for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
      for (const int head_dim : {64, 72, 8, 128}) {
        for (const int64_t n_tokens : {1, 4, 17, 96}) {
          const Problem problem(n_tokens, head_dim, rounding);
          EXPECT_LE(judge(problem, run(problem)), 1.0)
              << target << " " << head_dim << " " << n_tokens;
        }
      }
    }
  });
}

TEST(VisionAttention, LargeScoresStayWithinTheBound) {
  const Problem problem(33, 72, Rounding::none, 12.0f);
  EXPECT_LE(judge(problem, run(problem)), 1.0);
}

TEST(VisionAttention, ThreadsAndInstructionSetsGiveTheSameBits) {
  const Problem problem(70, 72, Rounding::none);
  const std::vector<float> want = run(problem);
  EXPECT_TRUE(same_bits(run(problem, 2), want));
  on_every_target(
      [&](const std::string& target) { EXPECT_TRUE(same_bits(run(problem), want)) << target; });
}

TEST(VisionAttention, OneTokenIsItsOwnValue) {
  const Problem problem(1, 72, Rounding::none);
  const std::vector<float> out = run(problem);
  for (int i = 0; i < 144; ++i) {
    EXPECT_EQ(out[static_cast<size_t>(i)], problem.qkv[static_cast<size_t>(288 + i)]);
  }
}

TEST(VisionAttentionMutant, MistakesLeaveTheBound) {
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    const Problem problem(40, 72, rounding);
    Problem mutant = problem;
    mutant.scale = 0.125f;  // of a head width of 64
    EXPECT_GT(judge(problem, run(mutant)), 1.0) << "scale";
    mutant = problem;
    for (int64_t t = 0; t < 40; ++t) {
      for (int i = 64; i < 72; ++i) mutant.qkv[static_cast<size_t>(t * mutant.stride + i)] = 0.0f;
    }
    EXPECT_GT(judge(problem, run(mutant)), 1.0) << "the head's tail left out";
    mutant = problem;
    mutant.n_tokens = 39;
    std::vector<float> out = run(mutant);
    out.resize(static_cast<size_t>(problem.out_size()), 0.0f);
    EXPECT_GT(judge(problem, out), 1.0) << "the last key left out";
  }
}

TEST(VisionAttentionMutant, AWrongQueryRowIsFound) {
  const Problem problem(40, 64, Rounding::none);
  std::vector<float> out = run(problem);
  std::rotate(out.begin(), out.begin() + 128, out.end());
  EXPECT_GT(judge(problem, out), 1.0);
}

}  // namespace
}  // namespace lockstep
