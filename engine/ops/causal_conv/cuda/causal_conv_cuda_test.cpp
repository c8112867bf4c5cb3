// The convolution on a card has the bits of the CPU op, whatever its rows are cut into.
#include "engine/ops/causal_conv/cuda/causal_conv_cuda.h"

#include <gtest/gtest.h>

#include "engine/ops/causal_conv/causal_conv.h"
#include "engine/ops/common/cuda/device_test_util.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

// Inputs of one sequence with the three before them.
struct Problem {
  Problem(uint64_t seed, int64_t n, int channels)
      : n_tokens(n),
        n_channels(channels),
        m(random_floats(seed, (3 + n) * channels, 3.0f, Rounding::bf16)),
        weight(random_floats(92, int64_t{channels} * 4, 1.0f)) {}
  int64_t n_tokens;
  int n_channels;
  std::vector<float> m;  // [3 + n_tokens, n_channels]
  std::vector<float> weight;

  std::vector<uint16_t> rows(int64_t first, int64_t n) const {
    std::vector<uint16_t> bits;
    for (int64_t i = first * n_channels; i < (first + n) * n_channels; ++i) {
      bits.push_back(float_to_bf16(m[static_cast<size_t>(i)]));
    }
    return bits;
  }
};

// What the CPU op makes of all tokens.
std::vector<float> on_cpu(const Problem& p) {
  ThreadPool pool(1);
  std::vector<float> state, out(static_cast<size_t>(p.n_tokens * p.n_channels));
  for (int c = 0; c < p.n_channels; ++c) {
    for (int j = 0; j < 3; ++j) state.push_back(p.m[static_cast<size_t>(j * p.n_channels + c)]);
  }
  causal_conv({p.m.data() + int64_t{3} * p.n_channels, p.n_channels, p.weight.data(), state.data(),
               out.data(), p.n_channels, p.n_tokens, p.n_channels, Rounding::bf16},
              pool);
  return out;
}

// A window on the card: three rows, then rows that only decode uses.
GuardedBytes window_of(const Problem& p) {
  std::vector<uint16_t> bits = p.rows(0, 3);
  bits.resize(static_cast<size_t>(kConvWindowRows * p.n_channels), 0xffff);
  return GuardedBytes(bits);
}

// Runs all tokens in the given spans; checks the window after each.
std::vector<float> prefill(const Problem& p, const std::vector<int64_t>& spans) {
  const int64_t m_stride = p.n_channels + 8, out_stride = p.n_channels + 16;
  const GuardedBytes weight(p.weight), window = window_of(p);
  const GuardedBytes out(p.n_tokens * out_stride * 2);
  int64_t at = 0;
  for (const int64_t n : spans) {
    std::vector<uint16_t> rows(static_cast<size_t>(n * m_stride), 0xffff);
    for (int64_t t = 0; t < n; ++t) {
      const std::vector<uint16_t> row = p.rows(3 + at + t, 1);
      std::copy(row.begin(), row.end(), rows.begin() + t * m_stride);
    }
    const GuardedBytes m(rows);
    CausalConvCudaArgs args;
    args.m = m.as<uint16_t>();
    args.m_stride = m_stride;
    args.weight = weight.as<float>();
    args.window = window.as<uint16_t>();
    args.out = out.as<uint16_t>() + at * out_stride;
    args.out_stride = out_stride;
    args.n_tokens = n;
    args.n_channels = p.n_channels;
    causal_conv_prefill_cuda(args, *Card::instance().stream);
    Card::instance().stream->synchronize();
    at += n;
    std::vector<uint16_t> want = p.rows(at, 3);
    want.resize(static_cast<size_t>(kConvWindowRows * p.n_channels), 0xffff);
    EXPECT_EQ(window.values<uint16_t>(), want) << "window after " << at << " tokens";
  }
  EXPECT_EQ(at, p.n_tokens);
  EXPECT_TRUE(out.walls_intact() && window.walls_intact());
  std::vector<float> dense;
  const std::vector<uint16_t> bits = out.values<uint16_t>();
  for (int64_t t = 0; t < p.n_tokens; ++t) {
    for (int64_t i = 0; i < out_stride; ++i) {
      const uint16_t b = bits[static_cast<size_t>(t * out_stride + i)];
      if (i < p.n_channels) {
        dense.push_back(bf16_to_float(b));
      } else {
        EXPECT_EQ(b, 0xffff) << "wrote beyond row " << t;
      }
    }
  }
  return dense;
}

class CausalConvCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

TEST_F(CausalConvCuda, PrefillHasTheBitsOfTheCpuOp) {
  for (const int n_channels : {8, 520, 1032}) {
    for (const int64_t n : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 67}) {
      const Problem p(static_cast<uint64_t>(n), n, n_channels);
      ASSERT_TRUE(same_bits(prefill(p, {n}), on_cpu(p))) << n_channels << " " << n;
    }
  }
}

TEST_F(CausalConvCuda, CutsOfAPrefillChangeNothing) {
  const Problem p(5, 70, 72);
  const std::vector<float> want = on_cpu(p);
  for (const std::vector<int64_t>& spans : std::vector<std::vector<int64_t>>{
           {64, 6}, {1, 1, 1, 67}, {2, 60, 8}, {33, 37}, std::vector<int64_t>(70, 1)}) {
    ASSERT_TRUE(same_bits(prefill(p, spans), want)) << spans.size() << " spans";
  }
}

TEST_F(CausalConvCuda, PrefillStaysWithinTheBoundOfTheOracle) {
  const Problem p(6, 40, 64);
  std::vector<float> state;
  for (int c = 0; c < 64; ++c) {
    for (int j = 0; j < 3; ++j) state.push_back(p.m[static_cast<size_t>(j * 64 + c)]);
  }
  std::vector<double> value(static_cast<size_t>(40 * 64)), bound;
  causal_conv_oracle(
      {p.m.data() + 3 * 64, 64, p.weight.data(), state.data(), nullptr, 64, 40, 64, Rounding::none},
      value.data());
  for (size_t i = 0; i < value.size(); ++i) {
    double condition = 0;
    for (size_t j = 0; j < 4; ++j) {
      condition += std::fabs(double{p.weight[i % 64 * 4 + j]} * p.m[i + j * 64]);
    }
    bound.push_back(tolerance::with_output_rounding(
        value[i], tolerance::causal_conv_bound(condition, value[i]), Rounding::bf16));
  }
  EXPECT_LE(worst_ratio(prefill(p, {40}), value, bound), 1.0);
}

// Decode rounds of several slots with any number of columns kept.
struct Rounds {
  explicit Rounds(const std::vector<Problem>& sequences)
      : problems(sequences),
        n_channels(sequences[0].n_channels),
        slot_stride(int64_t{kConvWindowRows} * n_channels + 8),
        weight(sequences[0].weight),
        windows((static_cast<int64_t>(sequences.size()) + 1) * slot_stride * 2) {
    for (size_t i = 0; i < problems.size(); ++i) {
      const std::vector<uint16_t> past = problems[i].rows(0, 3);
      Card::instance().stream->copy_in(windows.as<uint16_t>() + slot(i) * slot_stride, past.data(),
                                       static_cast<int64_t>(past.size()) * 2);
    }
    Card::instance().stream->synchronize();
  }
  static int32_t slot(size_t i) { return static_cast<int32_t>(i) + 1; }

  // Rows of all spans, [n_spans, kGdnRoundRows, n_channels]. first[i]: the token of the span's
  // first row.
  std::vector<uint16_t> run(const std::vector<GdnSpan>& spans, const std::vector<int64_t>& first) {
    std::vector<uint16_t> m;
    for (size_t i = 0; i < spans.size(); ++i) {
      const std::vector<uint16_t> rows = problems[static_cast<size_t>(spans[i].slot - 1)].rows(
          3 + first[i] + spans[i].n_replayed, spans[i].n_new);
      m.insert(m.end(), rows.begin(), rows.end());
    }
    const GuardedBytes m_card(m), spans_card(spans);
    const GuardedBytes out(static_cast<int64_t>(spans.size()) * kGdnRoundRows * n_channels * 2);
    CausalConvCudaArgs args;
    args.m = m_card.as<uint16_t>();
    args.m_stride = n_channels;
    args.weight = weight.as<float>();
    args.window = windows.as<uint16_t>();
    args.slot_stride = slot_stride;
    args.out = out.as<uint16_t>();
    args.out_stride = n_channels;
    args.spans = spans_card.as<GdnSpan>();
    args.n_spans = static_cast<int>(spans.size());
    args.n_channels = n_channels;
    causal_conv_decode_cuda(args, *Card::instance().stream);
    Card::instance().stream->synchronize();
    EXPECT_TRUE(out.walls_intact() && windows.walls_intact());
    return out.values<uint16_t>();
  }

  const std::vector<Problem>& problems;
  int n_channels;
  int64_t slot_stride;
  GuardedBytes weight;
  GuardedBytes windows;
};

TEST_F(CausalConvCuda, RoundsReplayWhatTheWindowHolds) {
  constexpr int64_t kTokens = 60;
  for (const int n_channels : {8, 136}) {
    const std::vector<Problem> problems = {Problem(1, kTokens, n_channels),
                                           Problem(2, kTokens, n_channels)};
    const std::vector<std::vector<float>> want = {on_cpu(problems[0]), on_cpu(problems[1])};
    PhiloxStream random(static_cast<uint64_t>(n_channels));
    Rounds rounds(problems);
    std::vector<int64_t> begin = {0, 0};
    std::vector<int> kept = {0, 0};
    for (int round = 0; round < 7; ++round) {
      std::vector<GdnSpan> spans;
      int32_t column = 0;
      for (size_t i = 0; i < 2; ++i) {
        auto n_new = static_cast<int32_t>(random.next_below(9));
        if (begin[i] + kept[i] + n_new > kTokens) n_new = 0;
        const bool draftless = random.next_below(4) == 0;
        spans.push_back(
            {Rounds::slot(i), column, kept[i], n_new, draftless ? kept[i] + n_new : kept[i]});
        column += n_new;
      }
      const std::vector<uint16_t> out = rounds.run(spans, begin);
      for (size_t i = 0; i < 2; ++i) {
        const int n_rows = spans[i].n_replayed + spans[i].n_new;
        for (int64_t j = 0; j < int64_t{kGdnRoundRows} * n_channels; ++j) {
          const uint16_t got =
              out[i * kGdnRoundRows * static_cast<size_t>(n_channels) + static_cast<size_t>(j)];
          const uint16_t expected =
              j < int64_t{n_rows} * n_channels
                  ? float_to_bf16(want[i][static_cast<size_t>(begin[i] * n_channels + j)])
                  : 0xffff;
          ASSERT_EQ(got, expected) << "round " << round << " slot " << i << " at " << j;
        }
        begin[i] += spans[i].n_committed;
        const int n_left = n_rows - spans[i].n_committed;
        kept[i] = n_left == 0 ? 0 : static_cast<int>(1 + random.next_below(n_left));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
