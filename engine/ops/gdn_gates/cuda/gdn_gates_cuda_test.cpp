// Gates of a prefill and of decode rounds on a card.
#include "engine/ops/gdn_gates/cuda/gdn_gates_cuda.h"

#include <gtest/gtest.h>

#include "engine/ops/common/cuda/device_test_util.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/gdn_gates/gdn_gates.h"

namespace lockstep {
namespace {

using namespace op_test;

struct Problem {
  Problem(int64_t n, int heads, float scale)
      : n_tokens(n),
        n_heads(heads),
        stride(heads + 5),
        a(random_floats(71, n * stride, scale, Rounding::bf16)),
        b(random_floats(72, n * stride, scale, Rounding::bf16)),
        a_log(random_floats(73, heads, 2.5f)),
        dt_bias(random_floats(74, heads, 3.0f)) {}

  int64_t n_tokens;
  int n_heads;
  int64_t stride;
  std::vector<float> a, b, a_log, dt_bias;

  std::vector<float> dense(const std::vector<float>& x) const {
    std::vector<float> out;
    for (int64_t t = 0; t < n_tokens; ++t) {
      out.insert(out.end(), x.begin() + t * stride, x.begin() + t * stride + n_heads);
    }
    return out;
  }
};

std::vector<uint16_t> bits_of(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(float_to_bf16(value));
  return bits;
}

// A problem on the card.
struct Loaded {
  explicit Loaded(const Problem& p)
      : a(bits_of(p.a)), b(bits_of(p.b)), a_log(p.a_log), dt_bias(p.dt_bias) {
    args.a = a.as<uint16_t>();
    args.b = b.as<uint16_t>();
    args.stride = p.stride;
    args.a_log = a_log.as<float>();
    args.dt_bias = dt_bias.as<float>();
    args.n_heads = p.n_heads;
  }
  GuardedBytes a, b, a_log, dt_bias;
  GdnGatesCudaArgs args;
};

struct Gates {
  std::vector<float> log_decay, beta;
};

Gates prefill(const Problem& p) {
  Loaded loaded(p);
  const GuardedBytes log_decay(p.n_tokens * p.n_heads * 4), beta(p.n_tokens * p.n_heads * 4);
  loaded.args.log_decay = log_decay.as<float>();
  loaded.args.beta = beta.as<float>();
  loaded.args.n_tokens = p.n_tokens;
  gdn_gates_prefill_cuda(loaded.args, *Card::instance().stream);
  Card::instance().stream->synchronize();
  EXPECT_TRUE(log_decay.walls_intact() && beta.walls_intact());
  return {log_decay.values<float>(), beta.values<float>()};
}

void expect_within(const std::vector<float>& got, const std::vector<double>& want) {
  std::vector<double> bound;
  for (const double value : want) {
    bound.push_back(std::fabs(value) * tolerance::kGdnGatesRelative + tolerance::kFloatTiny);
  }
  EXPECT_LE(worst_ratio(got, want, bound), 1.0);
}

class GdnGatesCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

TEST_F(GdnGatesCuda, StayWithinOneRoundingOfTheOracle) {
  for (const float scale : {1e-3f, 6.0f, 40.0f, 120.0f}) {
    for (const auto& [n_tokens, n_heads] :
         std::vector<std::pair<int64_t, int>>{{1, 1}, {7, 24}, {130, 48}}) {
      const Problem p(n_tokens, n_heads, scale);
      const Gates got = prefill(p);
      const std::vector<float> a = p.dense(p.a), b = p.dense(p.b);
      std::vector<double> log_decay(a.size()), beta(a.size());
      gdn_gates_oracle({a.data(), b.data(), p.a_log.data(), p.dt_bias.data(), nullptr, nullptr,
                        n_tokens, n_heads},
                       log_decay.data(), beta.data());
      expect_within(got.log_decay, log_decay);
      expect_within(got.beta, beta);
    }
  }
}

TEST_F(GdnGatesCuda, NanStaysWhereItBelongs) {
  Problem p(3, 4, 1.0f);
  p.a[4] = std::nanf("");  // of the padding
  p.a[1] = std::nanf("");
  p.b[2] = std::nanf("");
  const Gates got = prefill(p);
  for (size_t i = 0; i < got.beta.size(); ++i) {
    EXPECT_EQ(std::isnan(got.log_decay[i]), i == 1) << i;
    EXPECT_EQ(std::isnan(got.beta[i]), i == 2) << i;
  }
}

// Rounds with records: rows are the replayed columns, then the new ones, with the bits of a
// prefill.
TEST_F(GdnGatesCuda, RoundsReplayWhatTheRecordHolds) {
  for (const int n_heads : {3, 40}) {
    const Problem p(40, n_heads, 6.0f);
    const Gates want = prefill(p);
    Loaded loaded(p);
    const int64_t slot_stride = int64_t{2} * kGdnRoundColumns * n_heads + 3;
    const GuardedBytes record(3 * slot_stride * 4);
    loaded.args.record = record.as<float>();
    loaded.args.slot_stride = slot_stride;
    PhiloxStream random(5);
    // Tokens of slot 2 from 0 on, of slot 0 from 20 on.
    std::vector<int64_t> begin = {20, 0};
    std::vector<int> kept = {0, 0};
    for (int round = 0; round < 5; ++round) {
      std::vector<GdnSpan> spans;
      for (int i = 0; i < 2; ++i) {
        const auto n_new = static_cast<int32_t>(1 + random.next_below(4 + 4 * (round == 0)));
        const bool draftless = random.next_below(4) == 0;
        spans.push_back({2 * i, static_cast<int32_t>(begin[i] + kept[i]), kept[i], n_new,
                         draftless ? kept[i] + n_new : kept[i]});
      }
      const GuardedBytes spans_card(spans);
      const int64_t n_values = 2 * kGdnRoundRows * n_heads;
      const GuardedBytes log_decay(n_values * 4), beta(n_values * 4);
      loaded.args.spans = spans_card.as<GdnSpan>();
      loaded.args.n_spans = 2;
      loaded.args.log_decay = log_decay.as<float>();
      loaded.args.beta = beta.as<float>();
      gdn_gates_decode_cuda(loaded.args, *Card::instance().stream);
      Card::instance().stream->synchronize();
      EXPECT_TRUE(log_decay.walls_intact() && beta.walls_intact() && record.walls_intact());
      const std::vector<float> decays = log_decay.values<float>(), betas = beta.values<float>();
      for (int i = 0; i < 2; ++i) {
        const GdnSpan& span = spans[static_cast<size_t>(i)];
        const int n_rows = span.n_replayed + span.n_new;
        for (int r = 0; r < kGdnRoundRows; ++r) {
          for (int h = 0; h < n_heads; ++h) {
            const auto at = static_cast<size_t>((i * kGdnRoundRows + r) * n_heads + h);
            const auto from = static_cast<size_t>((begin[i] + r) * n_heads + h);
            if (r < n_rows) {
              ASSERT_EQ(decays[at], want.log_decay[from]) << round << " " << i << " " << r;
              ASSERT_EQ(betas[at], want.beta[from]) << round << " " << i << " " << r;
            } else {
              ASSERT_TRUE(std::isnan(decays[at]) && std::isnan(betas[at]));
            }
          }
        }
        begin[i] += span.n_committed;
        const int n_left = n_rows - span.n_committed;
        kept[i] = n_left == 0 ? 0 : static_cast<int>(1 + random.next_below(n_left));
      }
    }
    // The slot between them was never touched.
    const std::vector<float> all = record.values<float>();
    for (int64_t i = slot_stride; i < 2 * slot_stride; ++i) {
      ASSERT_TRUE(std::isnan(all[static_cast<size_t>(i)]));
    }
  }
}

}  // namespace
}  // namespace lockstep
