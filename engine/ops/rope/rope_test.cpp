#include "engine/ops/rope/rope.h"

#include <gtest/gtest.h>

#include <utility>

#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr double kTheta = 1e7;

struct Problem {
  explicit Problem(Rounding round, int heads = 3, int dim = 256, int rotary = 64)
      : n_heads(heads),
        head_dim(dim),
        rotary_dim(rotary),
        rounding(round),
        stride(int64_t{heads} * dim + 9),
        positions({{0, 0, 0},
                   {1, 1, 1},
                   {1, 1, 1},
                   {77, 80, 91},
                   {77, 81, 91},
                   {77, 81, 92},
                   {4095, 4095, 4095},
                   {262143, 262143, 262143},
                   {5, 6, 7}}),
        inv_freq(rope_inverse_frequencies(kTheta, rotary)),
        x(random_floats(31, static_cast<int64_t>(positions.size()) * stride, 3.0f, round)) {}

  RopeArgs args(std::vector<float>& data) const {
    return {data.data(), stride,   positions.data(), inv_freq.data(), n_tokens(),
            n_heads,     head_dim, rotary_dim,       rounding};
  }
  int64_t n_tokens() const { return static_cast<int64_t>(positions.size()); }

  int n_heads;
  int head_dim;
  int rotary_dim;
  Rounding rounding;
  int64_t stride;
  std::vector<RopePosition> positions;
  std::vector<float> inv_freq;
  std::vector<float> x;
};

std::vector<float> run(const Problem& problem, int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> data = problem.x;
  rope(problem.args(data), pool);
  return data;
}

size_t index_of(const Problem& problem, int64_t t, int h, int i) {
  return static_cast<size_t>(t * problem.stride + int64_t{h} * problem.head_dim + i);
}

// Worst violation by `out` of the derived bound; values that are not rotated have a bound of 0.
double judge(const Problem& problem, const std::vector<float>& out) {
  const int half = problem.rotary_dim / 2;
  std::vector<float> input = problem.x;
  std::vector<double> want(
      static_cast<size_t>(problem.n_tokens() * problem.n_heads * problem.head_dim));
  rope_oracle(problem.args(input), want.data());
  std::vector<float> got;
  std::vector<double> bound;
  for (int64_t t = 0; t < problem.n_tokens(); ++t) {
    for (int h = 0; h < problem.n_heads; ++h) {
      for (int i = 0; i < problem.head_dim; ++i) {
        const double value = want[got.size()];
        got.push_back(out[index_of(problem, t, h, i)]);
        if (i >= problem.rotary_dim) {
          bound.push_back(0.0);
          continue;
        }
        const int pair = i % half;
        const RopePosition& position = problem.positions[static_cast<size_t>(t)];
        const double angle =
            static_cast<double>(problem.inv_freq[static_cast<size_t>(pair)] *
                                static_cast<float>(position[static_cast<size_t>(pair % 3)]));
        const double own = problem.x[index_of(problem, t, h, i)];
        const double other = problem.x[index_of(problem, t, h, i < half ? i + half : i - half)];
        const double condition =
            std::fabs(own * std::cos(angle)) + std::fabs(other * std::sin(angle));
        bound.push_back(tolerance::with_output_rounding(
            value, condition * tolerance::kRopeCondition, problem.rounding));
      }
    }
  }
  return worst_ratio(got, want, bound);
}

class Rope : public ::testing::TestWithParam<Rounding> {};
INSTANTIATE_TEST_SUITE_P(Precisions, Rope, ::testing::Values(Rounding::none, Rounding::bf16));

TEST_P(Rope, StaysWithinTheDerivedBound) {
  EXPECT_LE(judge(Problem(GetParam()), run(Problem(GetParam()))), 1.0);
  const Problem whole_head(GetParam(), 2, 32, 32);
  EXPECT_LE(judge(whole_head, run(whole_head)), 1.0);
}

TEST_P(Rope, WritesRotatedValuesOnly) {
  Problem problem(GetParam());
  // Not representable in bfloat16: a stray rounding would show.
  for (float& value : problem.x) value += 0x1p-20f;
  const std::vector<float> out = run(problem);
  for (int64_t t = 0; t < problem.n_tokens(); ++t) {
    const auto offset = static_cast<size_t>(t * problem.stride);
    for (size_t i = 0; i < static_cast<size_t>(problem.stride); ++i) {
      const bool in_head = i < static_cast<size_t>(problem.n_heads * problem.head_dim);
      const bool rotated = in_head && i % static_cast<size_t>(problem.head_dim) <
                                          static_cast<size_t>(problem.rotary_dim);
      if (!rotated) {
        ASSERT_EQ(out[offset + i], problem.x[offset + i]);
      } else if (GetParam() == Rounding::bf16) {
        ASSERT_TRUE(all_bf16(std::span(out).subspan(offset + i, 1)));
      }
    }
  }
}

TEST_P(Rope, PositionZeroIsTheIdentity) {
  const Problem problem(GetParam());
  const std::vector<float> out = run(problem);
  for (size_t i = 0; i < static_cast<size_t>(problem.stride); ++i) {
    EXPECT_EQ(out[i], problem.x[i]);
  }
}

TEST_P(Rope, OneAndTwoThreadsGiveTheSameBits) {
  Problem problem(GetParam());
  for (int repeat = 0; repeat < 2; ++repeat) {
    problem.positions.insert(problem.positions.end(), problem.positions.begin(),
                             problem.positions.end());
    problem.x.insert(problem.x.end(), problem.x.begin(), problem.x.end());
  }
  EXPECT_TRUE(same_bits(run(problem, 1), run(problem, 2)));
}

TEST_P(Rope, InstructionSetsGiveTheSameBits) {
  const Problem problem(GetParam());
  const std::vector<float> want = run(problem);
  on_every_target(
      [&](const std::string& target) { EXPECT_TRUE(same_bits(run(problem), want)) << target; });
}

TEST_P(Rope, ATokenDoesNotDependOnTheOthers) {
  const Problem all(GetParam());
  const std::vector<float> together = run(all);
  for (size_t t = 0; t < all.positions.size(); ++t) {
    Problem one(GetParam());
    one.positions = {all.positions[t]};
    const auto first = all.x.begin() + static_cast<int64_t>(t) * all.stride;
    one.x.assign(first, first + all.stride);
    const auto stride = static_cast<size_t>(all.stride);
    EXPECT_TRUE(same_bits(run(one), std::span(together).subspan(t * stride, stride)));
  }
}

TEST_P(Rope, NanReachesItsPairOnly) {
  Problem problem(GetParam());
  problem.x[index_of(problem, 3, 1, 5)] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> out = run(problem);
  for (size_t i = 0; i < out.size(); ++i) {
    const bool in_pair = i == index_of(problem, 3, 1, 5) || i == index_of(problem, 3, 1, 5 + 32);
    EXPECT_EQ(std::isnan(out[i]), in_pair) << i;
  }
}

TEST(RopeFrequencies, MatchLongDoubleRoundedOnce) {
  for (const double theta : {1e4, 1e6, 1e7}) {
    for (const int dim : {16, 64, 128}) {
      const std::vector<float> got = rope_inverse_frequencies(theta, dim);
      ASSERT_EQ(got.size(), static_cast<size_t>(dim / 2));
      EXPECT_EQ(got[0], 1.0f);
      for (size_t i = 0; i < got.size(); ++i) {
        const long double exponent = -2.0L * static_cast<long double>(i) / dim;
        EXPECT_EQ(got[i], static_cast<float>(std::pow(static_cast<long double>(theta), exponent)));
      }
    }
  }
}

// Planted faults: each must leave the bound, in both precisions.
TEST_P(Rope, MutantOnePositionTooFarIsFound) {
  const Problem problem(GetParam());
  Problem mutant = problem;
  for (RopePosition& position : mutant.positions) {
    for (int32_t& axis : position) ++axis;
  }
  EXPECT_GT(judge(problem, run(mutant)), 1.0);
}

TEST_P(Rope, MutantHalvesExchangedIsFound) {
  const Problem problem(GetParam());
  const auto exchange = [&](std::vector<float>& data) {
    for (int64_t t = 0; t < problem.n_tokens(); ++t) {
      for (int h = 0; h < problem.n_heads; ++h) {
        for (int i = 0; i < 32; ++i) {
          std::swap(data[index_of(problem, t, h, i)], data[index_of(problem, t, h, i + 32)]);
        }
      }
    }
  };
  Problem mutant = problem;
  exchange(mutant.x);
  std::vector<float> out = run(mutant);
  exchange(out);
  EXPECT_GT(judge(problem, out), 1.0);
}

TEST_P(Rope, MutantAxesExchangedIsFound) {
  const Problem problem(GetParam());
  Problem mutant = problem;
  for (RopePosition& position : mutant.positions) std::swap(position[1], position[2]);
  EXPECT_GT(judge(problem, run(mutant)), 1.0);
}

TEST_P(Rope, MutantWholeHeadRotatedIsFound) {
  const Problem problem(GetParam());
  Problem mutant = problem;
  mutant.rotary_dim = mutant.head_dim;
  mutant.inv_freq = rope_inverse_frequencies(kTheta, mutant.rotary_dim);
  EXPECT_GT(judge(problem, run(mutant)), 1.0);
}

// An angle that is not rounded to float32 differs by up to 2^-7 at position 262143.
TEST(RopeMutant, AngleInFloat64IsFound) {
  const Problem problem(Rounding::none);
  std::vector<float> out = run(problem);
  const int64_t t = 7;  // position 262143
  for (int i = 1; i < 32; ++i) {
    const double angle = double{problem.inv_freq[static_cast<size_t>(i)]} * 262143.0;
    const double first = problem.x[index_of(problem, t, 0, i)];
    const double second = problem.x[index_of(problem, t, 0, i + 32)];
    out[index_of(problem, t, 0, i)] =
        static_cast<float>(first * std::cos(angle) - second * std::sin(angle));
  }
  EXPECT_GT(judge(problem, out), 1.0);
}

}  // namespace
}  // namespace lockstep
