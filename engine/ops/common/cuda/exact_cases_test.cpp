// Exact cases without a card: whatever adds in another order than the case's formula, the CPU ops
// here, gives the same bits; and a small mistake in the inputs changes them.
#include <gtest/gtest.h>

#include <set>

#include "engine/ops/common/cuda/gdn_exact.h"
#include "engine/ops/common/cuda/rows_exact.h"
#include "engine/ops/common/cuda/vision_exact.h"
#include "engine/ops/common/exact_values.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/gated_delta/gated_delta.h"
#include "engine/ops/gdn_gates/gdn_gates.h"
#include "engine/ops/layernorm/layernorm.h"
#include "engine/ops/sample/cuda/sample_exact.h"
#include "engine/ops/verify/cuda/verify_exact.h"
#include "engine/ops/vision_attention/vision_attention.h"

namespace lockstep {
namespace {

using op_test::same_bits;

constexpr int kDim = 128;
constexpr uint64_t kSeeds[] = {1, 2, 0xfedcba9876543210};

struct DeltaAnswer {
  std::vector<float> out;
  std::vector<float> state;
};

DeltaAnswer delta_of_cpu(DeltaExactProblem p, bool chunked) {
  constexpr int64_t kValues = int64_t{kGdnExactDeltaHeads} * kDim;
  DeltaAnswer answer;
  answer.out.resize(static_cast<size_t>(p.n_tokens * kValues));
  ThreadPool pool(1);
  const GatedDeltaArgs args{p.q.data(),
                            p.k.data(),
                            p.v.data(),
                            kDim,
                            kValues,
                            p.log_decay.data(),
                            p.beta.data(),
                            p.state.data(),
                            answer.out.data(),
                            kValues,
                            kGdnExactFirst,
                            p.n_tokens,
                            1,
                            kGdnExactDeltaHeads,
                            kDim,
                            kDim,
                            Rounding::bf16};
  chunked ? gated_delta_chunked(args, pool) : gated_delta_recurrent(args, pool);
  answer.out = with_plain_zeros(answer.out);
  answer.state = with_plain_zeros(p.state);
  return answer;
}

TEST(ExactCases, StatesOfTheDeltaRuleInBothForms) {
  const std::vector<ExactCase> cases = gdn_exact_cases(GdnExact::gated_delta);
  for (const uint64_t seed : kSeeds) {
    const DeltaExactProblem p(seed, kGdnExactPrefill);
    const std::vector<float> want = cases[0].host(seed);
    EXPECT_TRUE(same_bits(delta_of_cpu(p, false).state, want));
    EXPECT_TRUE(same_bits(delta_of_cpu(p, true).state, want));
    EXPECT_TRUE(same_bits(cases[1].host(seed), want));
  }
}

TEST(ExactCases, ReadsOfTheDeltaRule) {
  const std::vector<ExactCase> cases = gdn_exact_cases(GdnExact::gated_delta);
  for (const uint64_t seed : kSeeds) {
    const DeltaAnswer got = delta_of_cpu(DeltaExactProblem(seed, 2 * kGdnExactRound), false);
    std::vector<float> both(got.out.begin() + static_cast<ptrdiff_t>(got.out.size() / 2),
                            got.out.end());
    both.insert(both.end(), got.state.begin(), got.state.end());
    EXPECT_TRUE(same_bits(both, cases[2].host(seed)));
  }
}

TEST(ExactCases, AnotherStrengthOfOneTokenIsSeen) {
  DeltaExactProblem p(1, kGdnExactPrefill);
  const std::vector<float> want = delta_of_cpu(p, true).state;
  p.beta[150] += 0.5f;
  EXPECT_FALSE(same_bits(delta_of_cpu(p, true).state, want));
}

TEST(ExactCases, GatesOfTheCpuRoundTheSameWay) {
  for (const uint64_t seed : kSeeds) {
    const GatesExactProblem p(seed, kGdnExactPrefill);
    std::vector<float> got(2 * p.a.size());
    gdn_gates({p.a.data(), p.b.data(), p.a_log.data(), p.dt_bias.data(), got.data(),
               got.data() + p.a.size(), kGdnExactPrefill, kGdnExactGateHeads});
    EXPECT_TRUE(same_bits(got, gdn_exact_cases(GdnExact::gdn_gates)[0].host(seed)));
    got[7] = std::nextafter(got[7], 0.0f);
    EXPECT_FALSE(same_bits(got, gdn_exact_cases(GdnExact::gdn_gates)[0].host(seed)));
  }
}

// A row's order changes none of its values.
TEST(ExactCases, NormsOfReversedRows) {
  const std::vector<ExactCase> cases = vision_exact_cases(VisionExact::layernorm);
  for (size_t i = 0; i < cases.size(); ++i) {
    const int64_t width = kLayerNormExactWidths[i];
    LayerNormExactProblem p(3, width);
    std::vector<float> want = cases[i].host(3);
    for (int64_t row = 0; row < p.n_rows; ++row) {
      std::reverse(p.x.begin() + row * width, p.x.begin() + (row + 1) * width);
      std::reverse(want.begin() + row * width, want.begin() + (row + 1) * width);
    }
    std::reverse(p.weight.begin(), p.weight.end());
    std::reverse(p.bias.begin(), p.bias.end());
    std::vector<float> got(p.x.size());
    ThreadPool pool(1);
    layernorm({p.x.data(), p.weight.data(), p.bias.data(), got.data(), p.n_rows, width, kSquaresEps,
               Rounding::bf16},
              pool);
    EXPECT_TRUE(same_bits(got, want));
  }
}

std::vector<float> attention_of_cpu(const VisionAttentionExactProblem& p) {
  std::vector<float> out(p.q.size());
  ThreadPool pool(1);
  vision_attention({p.q.data(), p.k.data(), p.v.data(), int64_t{p.n_heads} * p.head_dim, out.data(),
                    p.n_tokens, p.n_heads, p.head_dim, p.scale, Rounding::bf16},
                   pool);
  return with_plain_zeros(out);
}

TEST(ExactCases, MeansOfAttention) {
  const std::vector<ExactCase> cases = vision_exact_cases(VisionExact::vision_attention);
  for (const uint64_t seed : kSeeds) {
    VisionAttentionExactProblem p(seed);
    EXPECT_TRUE(same_bits(attention_of_cpu(p), cases[0].host(seed)));
    p.scale = 0.0f;  // every key counts
    EXPECT_FALSE(same_bits(attention_of_cpu(p), cases[0].host(seed)));
  }
}

TEST(ExactCases, SampledTokensAreManyAndValid) {
  for (const ExactCase& c : sample_exact_cases()) {
    const std::vector<float> answer = c.host(5);
    const size_t per_request = 2 + 2 * kSampleExactTop;
    ASSERT_EQ(answer.size() % per_request, 0u);
    std::set<float> tokens;
    for (size_t i = 0; i < answer.size(); i += per_request) {
      EXPECT_GE(answer[i], 0.0f);
      tokens.insert(answer[i]);
    }
    EXPECT_GT(tokens.size(), 4u) << c.name;
  }
}

// Other inputs, other answers: no case is a constant.
TEST(ExactCases, SeedsChangeEveryAnswer) {
  std::vector<ExactCase> all = sample_exact_cases();
  const auto add = [&](const std::vector<ExactCase>& cases) {
    all.insert(all.end(), cases.begin(), cases.end());
  };
  add(verify_exact_cases());
  for (const auto& [op, folder] : kRowsExactOps) add(rows_exact_cases(op));
  for (const auto& [op, folder] : kGdnExactOps) add(gdn_exact_cases(op));
  for (const auto& [op, folder] : kVisionExactOps) add(vision_exact_cases(op));
  for (const ExactCase& c : all) {
    EXPECT_FALSE(same_bits(c.host(1), c.host(2))) << c.name;
    EXPECT_TRUE(same_bits(c.host(1), c.host(1))) << c.name;
  }
}

}  // namespace
}  // namespace lockstep
