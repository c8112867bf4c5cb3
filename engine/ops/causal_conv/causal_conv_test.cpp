#include "engine/ops/causal_conv/causal_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/base/float_formats.h"
#include "engine/base/math.h"
#include "engine/ops/common/guarded_floats.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace tolerance;
using op_test::GuardedFloats;
using op_test::on_every_target;
using op_test::random_floats;
using op_test::same_bits;
using op_test::worst_ratio;

struct Data {
  int64_t n_tokens;
  int64_t n_channels;
  int64_t stride;
  std::vector<float> m, weight, state;
};

Data make_data(int64_t n_tokens, int64_t n_channels, float magnitude = 2.0f) {
  const int64_t stride = n_channels + 3;
  return {n_tokens,
          n_channels,
          stride,
          random_floats(1, n_tokens * stride, magnitude),
          random_floats(2, n_channels * 4, 1.0f),
          random_floats(3, n_channels * 3, magnitude)};
}

struct Result {
  std::vector<float> out;  // dense
  std::vector<float> state;
};

CausalConvArgs make_args(const Data& data, float* state, float* out) {
  return {data.m.data(),   data.stride,   data.weight.data(), state,         out,
          data.n_channels, data.n_tokens, data.n_channels,    Rounding::none};
}

// Runs the tokens in spans of the given lengths; checks walls and inputs.
Result run(const Data& data, const std::vector<int64_t>& spans, int n_threads = 1,
           Rounding rounding = Rounding::none) {
  ThreadPool pool(n_threads);
  GuardedFloats state(data.n_channels * 3);
  GuardedFloats out(data.n_tokens * data.n_channels);
  std::copy(data.state.begin(), data.state.end(), state.data());
  const Data before = data;
  int64_t token = 0;
  for (const int64_t span : spans) {
    CausalConvArgs args = make_args(data, state.data(), out.data() + token * data.n_channels);
    args.m += token * data.stride;
    args.n_tokens = span;
    args.rounding = rounding;
    causal_conv(args, pool);
    token += span;
  }
  EXPECT_EQ(token, data.n_tokens);
  EXPECT_TRUE(state.walls_intact() && out.walls_intact());
  EXPECT_TRUE(same_bits(before.m, data.m) && same_bits(before.weight, data.weight));
  return {out.values(), state.values()};
}

enum class Mutant { none, stale_state, reversed_taps, no_silu };

struct Reference {
  std::vector<double> value, bound;
};

Reference reference(const Data& data, Mutant mutant) {
  Reference r;
  const int64_t lag = mutant == Mutant::stale_state ? 1 : 0;
  for (int64_t t = 0; t < data.n_tokens; ++t) {
    for (int64_t c = 0; c < data.n_channels; ++c) {
      double sum = 0;
      double condition = 0;
      for (int64_t tap = 0; tap < 4; ++tap) {
        const int64_t from = t - 3 + tap;
        const int64_t slot = std::max<int64_t>(0, 3 + from - lag);
        const double x = from < 0 ? data.state[c * 3 + slot] : data.m[from * data.stride + c];
        const double w = data.weight[c * 4 + (mutant == Mutant::reversed_taps ? 3 - tap : tap)];
        sum += w * x;
        condition += std::fabs(w * x);
      }
      r.value.push_back(mutant == Mutant::no_silu ? sum : sum / (1 + exp_f64(-sum)));
      r.bound.push_back(causal_conv_bound(condition, r.value.back()));
    }
  }
  return r;
}

TEST(CausalConv, IsWithinTheBoundOfTheOracle) {
  on_every_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const int64_t n_channels : {1, 15, 16, 17, 64, 100}) {
      for (const int64_t n_tokens : {1, 2, 3, 4, 5, 33}) {
        Data data = make_data(n_tokens, n_channels);
        const Result result = run(data, {n_tokens});
        std::vector<double> oracle(static_cast<size_t>(n_tokens * n_channels));
        causal_conv_oracle(make_args(data, data.state.data(), nullptr), oracle.data());
        const Reference exact = reference(data, Mutant::none);
        EXPECT_LE(worst_ratio(result.out, oracle, exact.bound), 1.0)
            << n_channels << " " << n_tokens;
        EXPECT_LE(worst_ratio(exact.value, oracle, exact.bound), 1e-6);
      }
    }
  });
}

TEST(CausalConv, LargeInputsNeitherOverflowNorPoison) {
  const Data data = make_data(20, 32, 400.0f);
  const Reference exact = reference(data, Mutant::none);
  EXPECT_LE(worst_ratio(run(data, {20}).out, exact.value, exact.bound), 1.0);
}

TEST(CausalConv, BoundCatchesMistakes) {
  const Data data = make_data(4, 48);
  const Result result = run(data, {4});
  const Reference exact = reference(data, Mutant::none);
  for (const Mutant mutant : {Mutant::stale_state, Mutant::reversed_taps, Mutant::no_silu}) {
    EXPECT_GT(worst_ratio(result.out, reference(data, mutant).value, exact.bound), 100.0);
  }
}

TEST(CausalConv, StateIsTheLastThreeRawInputs) {
  for (const int64_t n_tokens : {1, 2, 3, 4, 5}) {
    const Data data = make_data(n_tokens, 20);
    const Result result = run(data, {n_tokens});
    for (int64_t c = 0; c < 20; ++c) {
      for (int64_t i = 0; i < 3; ++i) {
        const int64_t from = n_tokens - 3 + i;
        const float expected =
            from < 0 ? data.state[c * 3 + 3 + from] : data.m[from * data.stride + c];
        EXPECT_EQ(result.state[c * 3 + i], expected);
      }
    }
  }
}

TEST(CausalConv, CutsThreadsAndTargetsChangeNoBit) {
  const Data data = make_data(23, 200);
  const Result whole = run(data, {23});
  on_every_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const std::vector<int64_t>& spans : std::vector<std::vector<int64_t>>{
             {23}, {1, 22}, {22, 1}, {2, 1, 3, 17}, {5, 0, 18}, std::vector<int64_t>(23, 1)}) {
      for (const int n_threads : {1, 2}) {
        const Result cut = run(data, spans, n_threads);
        EXPECT_TRUE(same_bits(cut.out, whole.out));
        EXPECT_TRUE(same_bits(cut.state, whole.state));
      }
    }
  });
}

TEST(CausalConv, MayRunInPlaceAndRoundsOnce) {
  for (const int64_t n_channels : {32, 37}) {
    Data data = make_data(9, n_channels);
    const Result plain = run(data, {9});
    const Result rounded = run(data, {9}, 1, Rounding::bf16);
    ThreadPool pool(1);
    CausalConvArgs args = make_args(data, data.state.data(), data.m.data());
    args.out_stride = data.stride;
    causal_conv(args, pool);
    for (int64_t t = 0; t < 9; ++t) {
      for (int64_t c = 0; c < n_channels; ++c) {
        const float expected = plain.out[t * n_channels + c];
        EXPECT_EQ(data.m[t * data.stride + c], expected);
        EXPECT_EQ(rounded.out[t * n_channels + c], round_to_bf16(expected));
      }
    }
    EXPECT_TRUE(same_bits(data.state, plain.state));
  }
}

}  // namespace
}  // namespace lockstep
