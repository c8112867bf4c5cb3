#include "engine/ops/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr int64_t kGap = 3;

struct Problem {
  Problem(int64_t tokens, int64_t columns, Rounding round, float gate_scale = 10.0f)
      : n_tokens(tokens),
        width(columns),
        rounding(round),
        gate(random_floats(21, tokens * (columns + kGap), gate_scale, round)),
        up(random_floats(22, tokens * (columns + kGap), 4.0f, round)) {}

  SwigluArgs args(float* out) const {
    const int64_t stride = width + kGap;
    return {gate.data(), stride, up.data(), stride, out, stride, n_tokens, width, rounding};
  }

  int64_t n_tokens;
  int64_t width;
  Rounding rounding;
  std::vector<float> gate;
  std::vector<float> up;
};

std::vector<float> dense_rows(const Problem& problem, const std::vector<float>& padded) {
  std::vector<float> dense;
  for (int64_t t = 0; t < problem.n_tokens; ++t) {
    const auto first = padded.begin() + t * (problem.width + kGap);
    dense.insert(dense.end(), first, first + problem.width);
  }
  return dense;
}

// Rows with their gaps; the gaps must come back untouched.
std::vector<float> run(const Problem& problem, int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> out(problem.gate.size(), kGuard);
  swiglu(problem.args(out.data()), pool);
  for (int64_t t = 0; t < problem.n_tokens; ++t) {
    for (int64_t i = 0; i < kGap; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(t * (problem.width + kGap) + problem.width + i)], kGuard);
    }
  }
  return out;
}

double judge(const Problem& problem, const std::vector<float>& out) {
  std::vector<double> want(static_cast<size_t>(problem.n_tokens * problem.width));
  swiglu_oracle(problem.args(nullptr), want.data());
  const std::vector<float> up = dense_rows(problem, problem.up);
  std::vector<double> bound;
  for (size_t i = 0; i < want.size(); ++i) {
    const double up_size = std::fabs(static_cast<double>(up[i]));
    const double error = std::fabs(want[i]) * tolerance::kSwigluRelative +
                         up_size * tolerance::kSiluFlushed + tolerance::kFloatTiny;
    bound.push_back(tolerance::with_output_rounding(want[i], error, problem.rounding));
  }
  return worst_ratio(dense_rows(problem, out), want, bound);
}

TEST(Swiglu, StaysWithinTheDerivedBound) {
  on_every_target([](const std::string& target) {
    for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
      for (const int64_t width : {1, 7, 16, 33, 2048, 2049, 8704}) {
        for (const float scale : {0.01f, 10.0f, 200.0f}) {
          const Problem problem(2, width, rounding, scale);
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

TEST(Swiglu, IsExactWhereTheFormulaIs) {
  Problem problem(1, 4, Rounding::none);
  const std::vector<float> gates = {0.0f, 64.0f, -200.0f, 1e30f};
  std::copy(gates.begin(), gates.end(), problem.gate.begin());
  std::fill(problem.up.begin(), problem.up.end(), 3.0f);
  const std::vector<float> out = run(problem);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 192.0f);
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(out[3], 1e30f * 3.0f);
}

TEST(Swiglu, ThreadsAndInstructionSetsGiveTheSameBits) {
  const Problem problem(3, 5003, Rounding::none);
  const std::vector<float> want = run(problem);
  on_every_target([&](const std::string& target) {
    EXPECT_TRUE(same_bits(run(problem, 1), want)) << target;
    EXPECT_TRUE(same_bits(run(problem, 2), want)) << target;
  });
}

TEST(Swiglu, AValueDoesNotDependOnItsPlace) {
  const Problem problem(1, 37, Rounding::none);
  const std::vector<float> all = run(problem);
  for (size_t i = 0; i < 37; ++i) {
    Problem one(1, 1, Rounding::none);
    one.gate[0] = problem.gate[i];
    one.up[0] = problem.up[i];
    const std::vector<float> alone = run(one);
    EXPECT_TRUE(same_bits(std::span(alone).first(1), std::span(all).subspan(i, 1))) << i;
  }
}

TEST(Swiglu, OutMayBeGateOrUp) {
  const Problem problem(2, 21, Rounding::bf16);
  const std::vector<float> want = dense_rows(problem, run(problem));
  ThreadPool pool(1);
  Problem over_gate = problem;
  swiglu(over_gate.args(over_gate.gate.data()), pool);
  EXPECT_TRUE(same_bits(dense_rows(problem, over_gate.gate), want));
  Problem over_up = problem;
  swiglu(over_up.args(over_up.up.data()), pool);
  EXPECT_TRUE(same_bits(dense_rows(problem, over_up.up), want));
}

TEST(Swiglu, NanInEitherInputGivesNanThereOnly) {
  for (const Rounding rounding : {Rounding::none, Rounding::bf16}) {
    Problem problem(1, 20, rounding);
    problem.gate[3] = std::numeric_limits<float>::quiet_NaN();
    problem.up[18] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> out = run(problem);
    for (size_t i = 0; i < 20; ++i) EXPECT_EQ(std::isnan(out[i]), i == 3 || i == 18) << i;
  }
}

// Planted faults: each must leave the bound, in both precisions.
class SwigluMutant : public ::testing::TestWithParam<Rounding> {};
INSTANTIATE_TEST_SUITE_P(Precisions, SwigluMutant,
                         ::testing::Values(Rounding::none, Rounding::bf16));

TEST_P(SwigluMutant, GateAndUpExchangedIsFound) {
  const Problem problem(1, 64, GetParam());
  Problem mutant = problem;
  std::swap(mutant.gate, mutant.up);
  EXPECT_GT(judge(problem, run(mutant)), 1.0);
}

TEST_P(SwigluMutant, SigmoidInPlaceOfSiluIsFound) {
  const Problem problem(1, 64, GetParam());
  std::vector<float> out = run(problem);
  for (size_t i = 0; i < 64; ++i) out[i] /= problem.gate[i];
  EXPECT_GT(judge(problem, out), 1.0);
}

TEST_P(SwigluMutant, TanhFormOfGeluIsFound) {
  const Problem problem(1, 64, GetParam());
  std::vector<float> out = run(problem);
  for (size_t i = 0; i < 64; ++i) {
    const float g = problem.gate[i];
    const float inner = 0.7978845608f * (g + 0.044715f * g * g * g);
    out[i] = 0.5f * g * (1.0f + std::tanh(inner)) * problem.up[i];
  }
  EXPECT_GT(judge(problem, out), 1.0);
}

}  // namespace
}  // namespace lockstep
