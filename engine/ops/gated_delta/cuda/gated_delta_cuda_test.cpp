// Decode rounds of the gated delta rule on a card: recurrence, replay and commitment of states.
#include "engine/ops/gated_delta/cuda/gated_delta_cuda.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/ops/gated_delta/cuda/gated_delta_cuda_test_util.h"
#include "engine/ops/gated_delta/gated_delta_reference.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr int64_t kRowPadding = 24;
constexpr int64_t kOutPadding = 8;

// A part of a round: `n_replayed` tokens of a problem from `first` on, then `n_new`.
struct Part {
  const GdnProblem* problem;
  int64_t first;
  int n_replayed;
  int n_new;
  int n_committed;
  int slot;
};

// The states of all slots, which rounds change.
struct Slots {
  Slots(GdnHeads h, int n) : heads(h), stride(h.state_size() + 64), memory(n * stride * 4) {}
  void set(int slot, const std::vector<float>& state) {
    Card::instance().stream->copy_in(memory.as<float>() + slot * stride, state.data(),
                                     static_cast<int64_t>(state.size()) * 4);
    Card::instance().stream->synchronize();
  }
  std::vector<float> get(int slot) const {
    const std::vector<float> all = memory.values<float>();
    const auto from = all.begin() + slot * stride;
    for (int64_t i = heads.state_size(); i < stride; ++i) EXPECT_TRUE(std::isnan(from[i]));
    return {from, from + heads.state_size()};
  }
  GdnHeads heads;
  int64_t stride;
  GuardedBytes memory;
};

// Runs one round; returns the outputs of each part's new tokens.
std::vector<std::vector<float>> run_round(Slots& slots, const std::vector<Part>& parts) {
  const GdnHeads heads = slots.heads;
  const GatedDeltaCudaPlan plan =
      plan_gated_delta_cuda(heads.n_k_heads, heads.n_v_heads, kGdnHeadDim, kGdnHeadDim, 0,
                            KernelFamily::sm70, Card::instance().device->facts());
  const int64_t stride = heads.row_width() + kRowPadding;
  const size_t n_rows = parts.size() * kGdnRoundRows;
  std::vector<uint16_t> rows(n_rows * static_cast<size_t>(stride), 0xffff);
  std::vector<float> log_decay(n_rows * static_cast<size_t>(heads.n_v_heads), std::nanf(""));
  std::vector<float> beta = log_decay;
  std::vector<GdnSpan> spans;
  int32_t column = 0;
  for (size_t s = 0; s < parts.size(); ++s) {
    const Part& part = parts[s];
    for (int r = 0; r < part.n_replayed + part.n_new; ++r) {
      const int64_t row = static_cast<int64_t>(s) * kGdnRoundRows + r;
      for (int64_t i = 0; i < heads.row_width(); ++i) {
        rows[static_cast<size_t>(row * stride + i)] =
            float_to_bf16(part.problem->rows[(part.first + r) * heads.row_width() + i]);
      }
      for (int64_t h = 0; h < heads.n_v_heads; ++h) {
        const int64_t from = (part.first + r) * heads.n_v_heads + h;
        log_decay[static_cast<size_t>(row * heads.n_v_heads + h)] = part.problem->log_decay[from];
        beta[static_cast<size_t>(row * heads.n_v_heads + h)] = part.problem->beta[from];
      }
    }
    spans.push_back({part.slot, column, part.n_replayed, part.n_new, part.n_committed});
    column += part.n_new;
  }
  const GuardedBytes rows_card(rows), decay_card(log_decay), beta_card(beta), spans_card(spans);
  const int64_t out_stride = heads.v_width() + kOutPadding;
  const GuardedBytes out(column * out_stride * 2);
  GatedDeltaCudaArgs args{plan};
  args.q = rows_card.as<uint16_t>();
  args.k = args.q + heads.k_width();
  args.v = args.k + heads.k_width();
  args.row_stride = stride;
  args.log_decay = decay_card.as<float>();
  args.beta = beta_card.as<float>();
  args.state = slots.memory.as<float>();
  args.out = out.as<uint16_t>();
  args.out_stride = out_stride;
  gated_delta_decode_cuda(args, spans_card.as<GdnSpan>(), static_cast<int>(spans.size()),
                          slots.stride, *Card::instance().stream);
  Card::instance().stream->synchronize();
  EXPECT_TRUE(out.walls_intact() && slots.memory.walls_intact());
  std::vector<std::vector<float>> outs;
  const std::vector<uint16_t> bits = out.values<uint16_t>();
  int64_t at = 0;
  for (const Part& part : parts) {
    std::vector<float> values;
    for (int t = 0; t < part.n_new; ++t, ++at) {
      for (int64_t i = 0; i < out_stride; ++i) {
        const uint16_t b = bits[static_cast<size_t>(at * out_stride + i)];
        if (i < heads.v_width()) {
          values.push_back(bf16_to_float(b));
        } else {
          EXPECT_EQ(b, 0xffff) << "wrote beyond column " << at;
        }
      }
    }
    outs.push_back(values);
  }
  return outs;
}

// Token by token, each committed at once.
GdnResult one_by_one(const GdnProblem& p) {
  Slots slots(p.heads, 1);
  slots.set(0, p.state);
  GdnResult result;
  for (int64_t t = 0; t < p.n_tokens; ++t) {
    const std::vector<float> out = run_round(slots, {{&p, t, 0, 1, 1, 0}})[0];
    result.out.insert(result.out.end(), out.begin(), out.end());
  }
  result.state = slots.get(0);
  return result;
}

class GatedDeltaCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

TEST(GatedDeltaCudaPlan, WhatIsNotRegisteredIsAnError) {
  DeviceFacts facts;
  facts.block_shared_bytes = 227 * 1024;
  EXPECT_THROW(plan_gated_delta_cuda(2, 6, 64, 128, 8, KernelFamily::sm80, facts), Error);
  EXPECT_THROW(plan_gated_delta_cuda(2, 6, 128, 256, 8, KernelFamily::sm80, facts), Error);
  EXPECT_THROW(plan_gated_delta_cuda(4, 6, 128, 128, 8, KernelFamily::sm80, facts), Error);
  facts.block_shared_bytes = 48 * 1024;
  EXPECT_THROW(plan_gated_delta_cuda(2, 6, 128, 128, 8, KernelFamily::sm70, facts), Error);
}

TEST(GatedDeltaCudaPlan, RouteAndWorkspace) {
  const auto plan = [](int64_t max_tokens, KernelFamily family, int64_t shared_kib) {
    DeviceFacts facts;
    facts.block_shared_bytes = shared_kib * 1024;
    return plan_gated_delta_cuda(2, 6, 128, 128, max_tokens, family, facts);
  };
  EXPECT_EQ(plan(64, KernelFamily::sm70, 96).route->family, KernelFamily::sm70);
  EXPECT_EQ(plan(64, KernelFamily::sm70, 227).route->family, KernelFamily::sm70);
  EXPECT_EQ(plan(64, KernelFamily::sm80, 227).route->family, KernelFamily::sm80);
  EXPECT_EQ(plan(64, KernelFamily::sm80, 99).route->family, KernelFamily::sm70);
  const int64_t scales = (6 * 5 * 64 + 2 * 2 * 64) * 4;
  const int64_t chunk = 6 * 2 * 64 * 64 * 4 + scales;
  EXPECT_EQ(plan(0, KernelFamily::sm70, 96).workspace_bytes, 0);
  EXPECT_EQ(plan(1, KernelFamily::sm70, 96).workspace_bytes, chunk);
  EXPECT_EQ(plan(2, KernelFamily::sm70, 96).workspace_bytes, 2 * chunk);
  EXPECT_EQ(plan(65, KernelFamily::sm70, 96).workspace_bytes, 2 * chunk);
  EXPECT_EQ(plan(66, KernelFamily::sm70, 96).workspace_bytes, 3 * chunk);
  EXPECT_EQ(plan(1, KernelFamily::sm80, 227).workspace_bytes, 6 * 64 * 64 * 10 + scales);
}

TEST_F(GatedDeltaCuda, StaysWithinTheBoundForEveryNumberOfColumns) {
  for (const GdnHeads heads : {GdnHeads{1, 3}, GdnHeads{2, 2}, GdnHeads{2, 6}}) {
    for (int n = 1; n <= 2 * kGdnRoundColumns; ++n) {
      if (heads.n_v_heads != 3 && n % 5 != 3) continue;
      GdnProblem p = make_gdn_problem(static_cast<uint64_t>(n), heads, n);
      const GdnReference exact = gdn_recurrent_reference(p.args(0));
      const int n_new = std::min(n, kGdnRoundColumns);
      Slots slots(heads, 1);
      slots.set(0, p.state);
      const std::vector<float> out = run_round(slots, {{&p, 0, n - n_new, n_new, n, 0}})[0];
      const std::vector<double> bound = rounded_bounds(exact.value, exact.value_bound);
      const size_t skipped = exact.value.size() - out.size();
      EXPECT_LE(worst_ratio(out, std::span(exact.value).subspan(skipped),
                            std::span(bound).subspan(skipped)),
                1.0)
          << n;
      EXPECT_LE(worst_ratio(slots.get(0), exact.state, exact.state_bound), 1.0) << n;
    }
  }
}

TEST_F(GatedDeltaCuda, ExtremeDecaysStrengthsAndSmallKeys) {
  for (const auto& [shortest, longest] :
       std::vector<std::pair<double, double>>{{0.005, 0.3}, {1500, 2000}}) {
    for (const float scale : {1.0f, 1e-4f}) {
      GdnProblem p = make_gdn_problem(7, {1, 1}, 8, shortest, longest);
      for (int64_t t = 0; t < 8; ++t) {
        for (int64_t i = 0; i < 2 * p.heads.k_width(); ++i) {
          float& x = p.rows[static_cast<size_t>(t * p.heads.row_width() + i)];
          x = round_to_bf16(x * scale);
        }
      }
      std::fill(p.beta.begin() + 4, p.beta.end(), 1.0f);
      const GdnReference exact = gdn_recurrent_reference(p.args(0));
      Slots slots(p.heads, 1);
      slots.set(0, p.state);
      const std::vector<float> out = run_round(slots, {{&p, 0, 0, 8, 8, 0}})[0];
      EXPECT_LE(worst_ratio(out, exact.value, rounded_bounds(exact.value, exact.value_bound)), 1.0);
      EXPECT_LE(worst_ratio(slots.get(0), exact.state, exact.state_bound), 1.0);
    }
  }
}

// Unit vectors as keys, integers as values, no decay: the state is exact, because sum k^2 + 1e-6
// rounds to a power of four.
TEST_F(GatedDeltaCuda, IntegersAreExact) {
  GdnProblem p = make_gdn_problem(3, {1, 2}, 8);
  std::fill(p.log_decay.begin(), p.log_decay.end(), 0.0f);
  std::fill(p.beta.begin(), p.beta.end(), 1.0f);
  PhiloxStream random(9);
  for (float& x : p.state) x = static_cast<float>(random.next_below(101)) - 50.0f;
  for (int64_t t = 0; t < 8; ++t) {
    float* row = p.rows.data() + t * p.heads.row_width();
    std::fill_n(row, 2 * kGdnHeadDim, 0.0f);
    row[(t * 37 + 3) % kGdnHeadDim] = 64.0f;
    row[kGdnHeadDim + (t * 21) % kGdnHeadDim] = 64.0f;
    for (int64_t i = 2 * kGdnHeadDim; i < p.heads.row_width(); ++i) {
      row[i] = static_cast<float>(random.next_below(101)) - 50.0f;
    }
  }
  std::vector<double> value(static_cast<size_t>(8 * p.heads.v_width())), state(p.state.size());
  gated_delta_oracle(p.args(0), value.data(), state.data());
  Slots slots(p.heads, 1);
  slots.set(0, p.state);
  run_round(slots, {{&p, 0, 0, 8, 8, 0}});
  const std::vector<float> got = slots.get(0);
  for (size_t i = 0; i < state.size(); ++i) ASSERT_EQ(got[i], std::round(state[i])) << i;
}

// I4: rounds of 1 to 8 columns with any number of them kept, several slots, other places.
TEST_F(GatedDeltaCuda, AnyRoundsGiveTheBitsOfSingleTokens) {
  const GdnHeads heads{1, 3};
  constexpr int kTokens = 26;
  const std::vector<GdnProblem> problems = {make_gdn_problem(11, heads, kTokens),
                                            make_gdn_problem(21, heads, kTokens),
                                            make_gdn_problem(31, heads, kTokens)};
  std::vector<GdnResult> want;
  for (const GdnProblem& p : problems) want.push_back(one_by_one(p));
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    PhiloxStream random(seed);
    Slots slots(heads, 4);
    std::vector<int64_t> begin(3, 0), kept(3, 0), n_new(3, 0);
    for (int i = 0; i < 3; ++i) slots.set(i + 1, problems[static_cast<size_t>(i)].state);
    bool unfinished = true;
    while (unfinished) {
      unfinished = false;
      std::vector<Part> parts;
      for (int i = 2; i >= 0; --i) {
        const auto s = static_cast<size_t>(i);
        const int64_t first = begin[s];
        begin[s] += kept[s];
        n_new[s] = std::min<int64_t>(1 + random.next_below(8), kTokens - begin[s]);
        if (kept[s] == 0 && n_new[s] == 0) continue;
        unfinished = true;
        const auto replayed = static_cast<int>(kept[s]);
        parts.push_back(
            {&problems[s], first, replayed, static_cast<int>(n_new[s]), replayed, i + 1});
      }
      const std::vector<std::vector<float>> outs = run_round(slots, parts);
      for (size_t n = 0; n < parts.size(); ++n) {
        const auto s = static_cast<size_t>(parts[n].slot - 1);
        const auto from = want[s].out.begin() + begin[s] * heads.v_width();
        ASSERT_TRUE(std::equal(outs[n].begin(), outs[n].end(), from)) << "seed " << seed;
        kept[s] = n_new[s] == 0 ? 0 : 1 + random.next_below(static_cast<uint32_t>(n_new[s]));
      }
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(same_bits(slots.get(i + 1), want[static_cast<size_t>(i)].state));
    }
  }
}

TEST_F(GatedDeltaCuda, ARoundWithoutCommittedRowsLeavesTheState) {
  const GdnProblem p = make_gdn_problem(5, {1, 3}, 8);
  Slots slots(p.heads, 2);
  slots.set(0, p.state);
  slots.set(1, p.state);
  run_round(slots, {{&p, 0, 0, 0, 0, 1}, {&p, 0, 0, 8, 0, 0}});
  EXPECT_TRUE(same_bits(slots.get(0), p.state));
  EXPECT_TRUE(same_bits(slots.get(1), p.state));
}

TEST_F(GatedDeltaCuda, RunsGiveTheSameBits) {
  const GdnProblem p = make_gdn_problem(6, {2, 6}, 16);
  GdnResult want;
  for (int i = 0; i < 4; ++i) {
    Slots slots(p.heads, 1);
    slots.set(0, p.state);
    const GdnResult got{run_round(slots, {{&p, 0, 8, 8, 8, 0}})[0], slots.get(0)};
    if (i == 0) want = got;
    ASSERT_TRUE(same(got, want));
  }
}

}  // namespace
}  // namespace lockstep
