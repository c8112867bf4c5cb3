#include "engine/ops/gated_delta/gated_delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/float_formats.h"
#include "engine/ops/common/guarded_floats.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/gated_delta/gated_delta_reference.h"

namespace lockstep {
namespace {

using op_test::GuardedFloats;
using op_test::on_every_target;
using op_test::random_floats;
using op_test::random_integers;
using op_test::same_bits;
using op_test::worst_ratio;

using Form = void (*)(const GatedDeltaArgs&, ThreadPool&);

// Tokens with strides wider than their heads; half lives from 0.2 to 2000 tokens; beta from 0 to 1
// with both ends present; a zero key and a zero query among them.
struct Problem {
  int64_t n_tokens;
  int n_k_heads, n_v_heads, dk, dv;
  int64_t qk_stride, v_stride;
  std::vector<float> q, k, v, log_decay, beta, state;

  int64_t out_stride() const { return int64_t{n_v_heads} * dv; }
  GatedDeltaArgs args(float* state_out, float* out, int64_t first_position) const {
    return {q.data(),    k.data(),  v.data(), qk_stride,    v_stride,       log_decay.data(),
            beta.data(), state_out, out,      out_stride(), first_position, n_tokens,
            n_k_heads,   n_v_heads, dk,       dv,           Rounding::none};
  }
};

Problem make_problem(int64_t n_tokens, int n_k_heads, int n_v_heads, int dk, int dv,
                     double shortest = 0.2, double longest = 2000) {
  Problem p{n_tokens,
            n_k_heads,
            n_v_heads,
            dk,
            dv,
            int64_t{n_k_heads} * dk + 16,
            int64_t{n_v_heads} * dv + 32,
            {},
            {},
            {},
            {},
            {},
            {}};
  p.q = random_floats(1, n_tokens * p.qk_stride, 1.5f);
  p.k = random_floats(2, n_tokens * p.qk_stride, 1.5f);
  p.v = random_floats(3, n_tokens * p.v_stride, 2.0f);
  p.state = random_floats(4, int64_t{n_v_heads} * dk * dv, 0.3f);
  PhiloxStream stream(5);
  for (int64_t i = 0; i < n_tokens * n_v_heads; ++i) {
    const double half_life = shortest * std::pow(longest / shortest, stream.next_uniform());
    p.log_decay.push_back(static_cast<float>(-std::log(2.0) / half_life));
    const uint32_t kind = stream.next_below(8);
    p.beta.push_back(kind == 0 ? 0.0f : kind == 1 ? 1.0f : stream.next_uniform());
  }
  if (n_tokens > 3) {
    std::fill_n(p.k.begin() + 2 * p.qk_stride, p.qk_stride, 0.0f);
    std::fill_n(p.q.begin() + 3 * p.qk_stride, p.qk_stride, 0.0f);
  }
  return p;
}

struct Result {
  std::vector<float> out, state;
};

bool same(const Result& a, const Result& b) {
  return same_bits(a.out, b.out) && same_bits(a.state, b.state);
}

// Runs the tokens in the given spans; checks walls and inputs.
Result run(Form form, const Problem& p, int64_t first_position, const std::vector<int64_t>& spans,
           int n_threads = 1, Rounding rounding = Rounding::none) {
  ThreadPool pool(n_threads);
  GuardedFloats state(static_cast<int64_t>(p.state.size()));
  GuardedFloats out(p.n_tokens * p.out_stride());
  std::copy(p.state.begin(), p.state.end(), state.data());
  const Problem before = p;
  int64_t t = 0;
  for (const int64_t span : spans) {
    GatedDeltaArgs args = p.args(state.data(), out.data() + t * p.out_stride(), first_position + t);
    args.q += t * p.qk_stride;
    args.k += t * p.qk_stride;
    args.v += t * p.v_stride;
    args.log_decay += t * p.n_v_heads;
    args.beta += t * p.n_v_heads;
    args.n_tokens = span;
    args.rounding = rounding;
    form(args, pool);
    t += span;
  }
  EXPECT_EQ(t, p.n_tokens);
  EXPECT_TRUE(state.walls_intact() && out.walls_intact());
  EXPECT_TRUE(same_bits(before.q, p.q) && same_bits(before.k, p.k) && same_bits(before.v, p.v));
  EXPECT_TRUE(same_bits(before.log_decay, p.log_decay) && same_bits(before.beta, p.beta));
  return {out.values(), state.values()};
}

void expect_within(const Result& result, const GdnReference& exact, const std::string& what) {
  EXPECT_LE(worst_ratio(result.out, exact.value, exact.value_bound), 1.0) << what;
  EXPECT_LE(worst_ratio(result.state, exact.state, exact.state_bound), 1.0) << what;
}

TEST(GatedDelta, ReferenceEqualsTheOracle) {
  Problem p = make_problem(90, 2, 4, 32, 16);
  std::vector<float> state = p.state;
  std::vector<double> value(static_cast<size_t>(90 * p.out_stride())), end(state.size());
  gated_delta_oracle(p.args(state.data(), nullptr, 0), value.data(), end.data());
  EXPECT_TRUE(same_bits(state, p.state)) << "the oracle only reads the state";
  const GdnReference exact = gdn_recurrent_reference(p.args(state.data(), nullptr, 0));
  EXPECT_LE(worst_ratio(value, exact.value, exact.value_bound), 1e-6);
  EXPECT_LE(worst_ratio(end, exact.state, exact.state_bound), 1e-6);
}

TEST(GatedDelta, BothFormsAreWithinTheirDerivedBounds) {
  for (const int64_t n_tokens : {1, 2, 63, 64, 65, 127, 128, 130}) {
    for (const int64_t first : {0, 1, 37, 64, 1000}) {
      Problem p = make_problem(n_tokens, 1, 3, 48, 32);
      const GatedDeltaArgs args = p.args(p.state.data(), nullptr, first);
      const std::string what = std::to_string(n_tokens) + " from " + std::to_string(first);
      on_every_target([&](const std::string& target) {
        SCOPED_TRACE(target);
        expect_within(run(gated_delta_recurrent, p, first, {n_tokens}),
                      gdn_recurrent_reference(args), "recurrent " + what);
        expect_within(run(gated_delta_chunked, p, first, {n_tokens}), gdn_chunked_reference(args),
                      "chunked " + what);
      });
    }
  }
}

TEST(GatedDelta, ExtremeDecaysAndStrengthsAtFullWidth) {
  for (const auto& [shortest, longest] :
       std::vector<std::pair<double, double>>{{0.2, 0.3}, {1500, 2000}, {0.005, 2000}}) {
    for (const float beta : {-1.0f, 0.0f, 1.0f}) {
      Problem p = make_problem(130, 1, 1, 128, 128, shortest, longest);
      if (beta >= 0) std::fill(p.beta.begin(), p.beta.end(), beta);
      const GatedDeltaArgs args = p.args(p.state.data(), nullptr, 5);
      expect_within(run(gated_delta_recurrent, p, 5, {130}), gdn_recurrent_reference(args),
                    "recurrent");
      expect_within(run(gated_delta_chunked, p, 5, {130}), gdn_chunked_reference(args), "chunked");
    }
  }
}

// The same key again and again at full strength: the triangular system is as coupled as it can be.
TEST(GatedDelta, RepeatedKeysStayWithinTheBound) {
  Problem p = make_problem(128, 1, 1, 64, 32, 1000, 2000);
  for (int64_t t = 0; t < 128; ++t) {
    std::copy_n(p.k.begin(), 64, p.k.begin() + t * p.qk_stride);
  }
  std::fill(p.beta.begin(), p.beta.end(), 1.0f);
  const GatedDeltaArgs args = p.args(p.state.data(), nullptr, 0);
  expect_within(run(gated_delta_recurrent, p, 0, {128}), gdn_recurrent_reference(args),
                "recurrent");
  expect_within(run(gated_delta_chunked, p, 0, {128}), gdn_chunked_reference(args), "chunked");
}

// Unit vectors as keys, integers as values, no decay: every product and sum is exact but for the
// normalisation, and that is exact where sum k^2 + 1e-6 rounds to a power of four.
TEST(GatedDelta, IntegersAreExact) {
  Problem p = make_problem(70, 1, 1, 16, 16);
  std::fill(p.k.begin(), p.k.end(), 0.0f);
  std::fill(p.q.begin(), p.q.end(), 0.0f);
  std::fill(p.log_decay.begin(), p.log_decay.end(), 0.0f);
  std::fill(p.beta.begin(), p.beta.end(), 1.0f);
  p.v = random_integers(8, static_cast<int64_t>(p.v.size()), 50);
  p.state = random_integers(9, static_cast<int64_t>(p.state.size()), 50);
  for (int64_t t = 0; t < 70; ++t) {
    p.k[t * p.qk_stride + t % 16] = 64.0f;  // 4096 + 1e-6 rounds to 4096
    p.q[t * p.qk_stride + (t * 5 + 3) % 16] = 64.0f;
  }
  std::vector<double> value(static_cast<size_t>(70 * p.out_stride())), end(p.state.size());
  gated_delta_oracle(p.args(p.state.data(), nullptr, 0), value.data(), end.data());
  on_every_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Form form : {gated_delta_recurrent, gated_delta_chunked}) {
      const Result result = run(form, p, 0, {70});
      for (size_t i = 0; i < end.size(); ++i) ASSERT_EQ(result.state[i], std::round(end[i]));
      for (size_t i = 0; i < value.size(); ++i) {
        ASSERT_EQ(result.out[i], std::round(value[i] * 4) / 4);
      }
    }
  });
}

TEST(GatedDelta, BoundsCatchMistakes) {
  Problem p = make_problem(100, 2, 6, 64, 32);
  const GatedDeltaArgs args = p.args(p.state.data(), nullptr, 0);
  const Result recurrent = run(gated_delta_recurrent, p, 0, {100});
  const Result chunked = run(gated_delta_chunked, p, 0, {100});
  const GdnReference exact = gdn_recurrent_reference(args);
  const GdnReference exact_chunked = gdn_chunked_reference(args);
  for (const GdnMutant mutant :
       {GdnMutant::decay_after_update, GdnMutant::stale_state, GdnMutant::beta_forgotten,
        GdnMutant::query_scale_forgotten, GdnMutant::keys_not_normalised, GdnMutant::wrong_key_head,
        GdnMutant::read_before_decay}) {
    const GdnReference wrong = gdn_recurrent_reference(args, mutant);
    EXPECT_GT(worst_ratio(recurrent.out, wrong.value, exact.value_bound), 10.0)
        << static_cast<int>(mutant);
    EXPECT_GT(worst_ratio(chunked.out, wrong.value, exact_chunked.value_bound), 10.0)
        << static_cast<int>(mutant);
  }
}

TEST(GatedDelta, EpsilonBelongsToTheSum) {
  Problem p = make_problem(70, 1, 2, 32, 16);
  for (auto* values : {&p.q, &p.k}) {
    for (float& x : *values) x *= 1e-4f;
  }
  const GatedDeltaArgs args = p.args(p.state.data(), nullptr, 0);
  const Result result = run(gated_delta_recurrent, p, 0, {70});
  const GdnReference exact = gdn_recurrent_reference(args);
  expect_within(result, exact, "small keys");
  const GdnReference wrong = gdn_recurrent_reference(args, GdnMutant::epsilon_on_the_mean);
  EXPECT_GT(worst_ratio(result.out, wrong.value, exact.value_bound), 10.0);
}

TEST(GatedDelta, AnySplitOfTheRecurrentFormGivesTheSameBits) {
  const Problem p = make_problem(75, 2, 4, 32, 80);
  const Result whole = run(gated_delta_recurrent, p, 0, {75});
  on_every_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const std::vector<int64_t>& spans : std::vector<std::vector<int64_t>>{
             {75}, {1, 74}, {64, 11}, {3, 0, 30, 42}, std::vector<int64_t>(75, 1)}) {
      for (const int n_threads : {1, 2}) {
        EXPECT_TRUE(same(whole, run(gated_delta_recurrent, p, 9, spans, n_threads)));
      }
    }
  });
}

TEST(GatedDelta, CutsOnTheChunkGridGiveTheSameBits) {
  const Problem p = make_problem(260, 2, 4, 32, 80);
  const Result from_zero = run(gated_delta_chunked, p, 0, {260});
  const Result from_37 = run(gated_delta_chunked, p, 37, {260});
  EXPECT_FALSE(same(from_zero, from_37)) << "the grid is that of absolute positions";
  on_every_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const int n_threads : {1, 2}) {
      for (const std::vector<int64_t>& spans : std::vector<std::vector<int64_t>>{
               {260}, {64, 196}, {128, 64, 68}, {192, 64, 4}, {64, 64, 64, 64, 4}}) {
        EXPECT_TRUE(same(from_zero, run(gated_delta_chunked, p, 0, spans, n_threads)));
      }
      for (const std::vector<int64_t>& spans :
           std::vector<std::vector<int64_t>>{{260}, {27, 233}, {91, 128, 41}}) {
        EXPECT_TRUE(same(from_37, run(gated_delta_chunked, p, 37, spans, n_threads)));
      }
    }
  });
}

TEST(GatedDelta, AHeadsBitsDependOnThatHeadAlone) {
  const Problem p = make_problem(70, 1, 3, 32, 16);
  Problem other = p;
  for (int64_t t = 0; t < 70; ++t) {
    for (int i = 0; i < 16; ++i) other.v[t * p.v_stride + i] += 1.0f;  // head 0 only
    other.beta[t * 3 + 2] = 0.5f;                                      // head 2 only
  }
  for (const Form form : {gated_delta_recurrent, gated_delta_chunked}) {
    const Result a = run(form, p, 0, {70});
    const Result b = run(form, other, 0, {70});
    int64_t n_different = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(a.out.size()); ++i) {
      const bool head_1 = i / 16 % 3 == 1;
      n_different += a.out[i] != b.out[i];
      if (head_1) {
        ASSERT_EQ(a.out[i], b.out[i]);
      }
    }
    EXPECT_GT(n_different, 1000);
  }
}

TEST(GatedDelta, RoundsTheOutputAloneOnce) {
  const Problem p = make_problem(70, 1, 2, 32, 16);
  for (const Form form : {gated_delta_recurrent, gated_delta_chunked}) {
    const Result plain = run(form, p, 0, {70});
    const Result rounded = run(form, p, 0, {70}, 1, Rounding::bf16);
    EXPECT_TRUE(same_bits(plain.state, rounded.state));
    for (size_t i = 0; i < plain.out.size(); ++i) {
      ASSERT_EQ(rounded.out[i], round_to_bf16(plain.out[i]));
    }
  }
}

}  // namespace
}  // namespace lockstep
