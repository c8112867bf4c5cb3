// The chunked form of the gated delta rule on a card.
#include <gtest/gtest.h>

#include <string>

#include "engine/ops/gated_delta/cuda/gated_delta_cuda.h"
#include "engine/ops/gated_delta/cuda/gated_delta_cuda_test_util.h"
#include "engine/ops/gated_delta/gated_delta_reference.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr int64_t kRowPadding = 24;
constexpr int64_t kOutPadding = 8;

// Runs the tokens in the given spans through one state and one workspace.
GdnResult run(const GdnProblem& p, const GatedDeltaRoute& route, int64_t first_position,
              const std::vector<int64_t>& spans) {
  const GdnHeads heads = p.heads;
  const int64_t longest = *std::max_element(spans.begin(), spans.end());
  const GatedDeltaCudaPlan plan =
      plan_gated_delta_cuda(heads.n_k_heads, heads.n_v_heads, kGdnHeadDim, kGdnHeadDim, longest,
                            route.family, Card::instance().device->facts());
  const int64_t stride = heads.row_width() + kRowPadding;
  std::vector<uint16_t> rows(static_cast<size_t>(p.n_tokens * stride), 0xffff);
  for (int64_t t = 0; t < p.n_tokens; ++t) {
    for (int64_t i = 0; i < heads.row_width(); ++i) {
      rows[static_cast<size_t>(t * stride + i)] =
          float_to_bf16(p.rows[static_cast<size_t>(t * heads.row_width() + i)]);
    }
  }
  const GuardedBytes rows_card(rows), log_decay(p.log_decay), beta(p.beta), state(p.state);
  const GuardedBytes workspace(plan.workspace_bytes);
  const int64_t out_stride = heads.v_width() + kOutPadding;
  const GuardedBytes out(p.n_tokens * out_stride * 2);
  int64_t t = 0;
  for (const int64_t n : spans) {
    GatedDeltaCudaArgs args{plan};
    args.q = rows_card.as<uint16_t>() + t * stride;
    args.k = args.q + heads.k_width();
    args.v = args.k + heads.k_width();
    args.row_stride = stride;
    args.log_decay = log_decay.as<float>() + t * heads.n_v_heads;
    args.beta = beta.as<float>() + t * heads.n_v_heads;
    args.state = state.as<float>();
    args.out = out.as<uint16_t>() + t * out_stride;
    args.out_stride = out_stride;
    gated_delta_prefill_cuda(args, first_position + t, n, workspace.data(),
                             *Card::instance().stream);
    t += n;
  }
  Card::instance().stream->synchronize();
  EXPECT_EQ(t, p.n_tokens);
  EXPECT_TRUE(out.walls_intact() && state.walls_intact() && workspace.walls_intact());
  GdnResult result{{}, state.values<float>()};
  const std::vector<uint16_t> bits = out.values<uint16_t>();
  for (size_t i = 0; i < bits.size(); ++i) {
    if (static_cast<int64_t>(i) % out_stride < heads.v_width()) {
      result.out.push_back(bf16_to_float(bits[i]));
    } else {
      EXPECT_EQ(bits[i], 0xffff) << "wrote beyond a row";
    }
  }
  return result;
}

class GatedDeltaPrefillCuda : public testing::TestWithParam<GatedDeltaRoute> {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_CARD();
    const DeviceFacts& facts = Card::instance().device->facts();
    if (GetParam().family > family_of_card(facts) ||
        GetParam().block_shared_bytes > facts.block_shared_bytes) {
      GTEST_SKIP() << "no route on this card";
    }
  }
  GdnResult run_route(const GdnProblem& p, int64_t first_position,
                      const std::vector<int64_t>& spans) {
    return run(p, GetParam(), first_position, spans);
  }
  void expect_within(GdnProblem& p, int64_t first, const std::string& what) {
    const GdnForm form =
        GetParam().family == KernelFamily::sm70 ? GdnForm::inverse : GdnForm::matrix_unit;
    const GdnReference exact = gdn_chunked_reference(p.args(first), form);
    const GdnResult got = run_route(p, first, {p.n_tokens});
    EXPECT_LE(worst_ratio(got.out, exact.value, rounded_bounds(exact.value, exact.value_bound)),
              1.0)
        << what;
    EXPECT_LE(worst_ratio(got.state, exact.state, exact.state_bound), 1.0) << what;
  }
};

INSTANTIATE_TEST_SUITE_P(Routes, GatedDeltaPrefillCuda, testing::ValuesIn(gated_delta_routes()),
                         [](const auto& route) {
                           return std::string(family_name(route.param.family));
                         });

TEST_P(GatedDeltaPrefillCuda, StaysWithinTheBoundAtEveryBorder) {
  for (const int64_t n_tokens : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 130}) {
    for (const int64_t first : {0, 1, 37, 1000}) {
      if (first != 0 && first != 37 && n_tokens < 63) continue;
      GdnProblem p = make_gdn_problem(static_cast<uint64_t>(n_tokens), {1, 1}, n_tokens);
      expect_within(p, first, std::to_string(n_tokens) + " from " + std::to_string(first));
    }
  }
}

TEST_P(GatedDeltaPrefillCuda, EveryNumberOfValueHeadsOfAKeyHead) {
  for (const GdnHeads heads : {GdnHeads{1, 3}, GdnHeads{2, 4}, GdnHeads{1, 5}, GdnHeads{2, 6}}) {
    GdnProblem p = make_gdn_problem(40, heads, 70);
    expect_within(p, 3, std::to_string(heads.n_v_heads));
  }
}

TEST_P(GatedDeltaPrefillCuda, ExtremeDecaysAndStrengths) {
  for (const auto& [shortest, longest] :
       std::vector<std::pair<double, double>>{{0.2, 0.3}, {1500, 2000}, {0.005, 2000}}) {
    for (const float beta : {-1.0f, 0.0f, 1.0f}) {
      GdnProblem p = make_gdn_problem(50, {1, 1}, 130, shortest, longest);
      if (beta >= 0) std::fill(p.beta.begin(), p.beta.end(), beta);
      expect_within(p, 5, std::to_string(longest) + " " + std::to_string(beta));
    }
  }
}

// The same key again and again at full strength: the triangular system is as coupled as it can be.
TEST_P(GatedDeltaPrefillCuda, RepeatedKeysStayWithinTheBound) {
  GdnProblem p = make_gdn_problem(60, {1, 1}, 128, 1000, 2000);
  const int64_t width = p.heads.row_width();
  for (int64_t t = 1; t < 128; ++t) {
    std::copy_n(p.rows.begin() + kGdnHeadDim, kGdnHeadDim,
                p.rows.begin() + t * width + kGdnHeadDim);
  }
  std::fill(p.beta.begin(), p.beta.end(), 1.0f);
  expect_within(p, 0, "repeated");
}

// Unit vectors as keys, integers as values, no decay: the state is exact.
TEST_P(GatedDeltaPrefillCuda, IntegersAreExact) {
  GdnProblem p = make_gdn_problem(70, {1, 2}, 70);
  std::fill(p.log_decay.begin(), p.log_decay.end(), 0.0f);
  std::fill(p.beta.begin(), p.beta.end(), 1.0f);
  PhiloxStream random(9);
  for (float& x : p.state) x = static_cast<float>(random.next_below(101)) - 50.0f;
  for (int64_t t = 0; t < 70; ++t) {
    float* row = p.rows.data() + t * p.heads.row_width();
    std::fill_n(row, 2 * kGdnHeadDim, 0.0f);
    row[(t * 5 + 3) % kGdnHeadDim] = 64.0f;
    row[kGdnHeadDim + t % 16] = 64.0f;
    for (int64_t i = 2 * kGdnHeadDim; i < p.heads.row_width(); ++i) {
      row[i] = static_cast<float>(random.next_below(101)) - 50.0f;
    }
  }
  std::vector<double> value(static_cast<size_t>(70 * p.heads.v_width())), state(p.state.size());
  gated_delta_oracle(p.args(0), value.data(), state.data());
  const GdnResult got = run_route(p, 0, {70});
  for (size_t i = 0; i < state.size(); ++i) ASSERT_EQ(got.state[i], std::round(state[i])) << i;
}

TEST_P(GatedDeltaPrefillCuda, CutsOnTheChunkGridGiveTheSameBits) {
  const GdnProblem p = make_gdn_problem(80, {1, 3}, 260);
  const GdnResult from_zero = run_route(p, 0, {260});
  const GdnResult from_37 = run_route(p, 37, {260});
  EXPECT_FALSE(same(from_zero, from_37)) << "the grid is that of absolute positions";
  for (const std::vector<int64_t>& spans : std::vector<std::vector<int64_t>>{
           {260}, {64, 196}, {128, 64, 68}, {192, 64, 4}, {64, 64, 64, 64, 4}}) {
    EXPECT_TRUE(same(from_zero, run_route(p, 0, spans))) << spans.size();
    EXPECT_TRUE(same(from_zero, run_route(p, 6400, spans))) << spans.size();
  }
  for (const std::vector<int64_t>& spans :
       std::vector<std::vector<int64_t>>{{27, 233}, {91, 128, 41}}) {
    EXPECT_TRUE(same(from_37, run_route(p, 37, spans))) << spans.size();
  }
}

// A token's bits depend on no later token; a head's on no other head.
TEST_P(GatedDeltaPrefillCuda, LaterTokensAndOtherHeadsChangeNothing) {
  const GdnProblem p = make_gdn_problem(90, {1, 3}, 100);
  const GdnResult all = run_route(p, 0, {100});
  const int64_t width = p.heads.row_width();
  GdnProblem other = p;
  for (int64_t t = 0; t < 100; ++t) {
    other.rows[static_cast<size_t>(t * width + 2 * kGdnHeadDim)] += 1.0f;  // head 0 alone
    other.beta[static_cast<size_t>(t * 3 + 2)] = 0.5f;                     // head 2 alone
  }
  for (int64_t i = 90 * width; i < 100 * width; ++i) other.rows[static_cast<size_t>(i)] = 1.0f;
  const GdnResult changed = run_route(other, 0, {100});
  int64_t n_different = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(all.out.size()); ++i) {
    const bool same_bits = all.out[static_cast<size_t>(i)] == changed.out[static_cast<size_t>(i)];
    n_different += !same_bits;
    if (i / kGdnHeadDim % 3 == 1 && i / p.heads.v_width() < 90) {
      ASSERT_TRUE(same_bits) << i;
    }
  }
  EXPECT_GT(n_different, 1000);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(same(run_route(p, 0, {100}), all));
}

}  // namespace
}  // namespace lockstep
