// Attention on a card: every route against float64 and against itself.
#include "engine/ops/attention/cuda/attention_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/base/philox.h"
#include "engine/ops/attention/cuda/attention_cuda_test_util.h"

namespace lockstep {
namespace {

using op_test::Card;
using op_test::CardCache;
using op_test::CardColumns;
using op_test::Heads;
using op_test::random_cache;
using op_test::random_floats;
using op_test::worst_ratio;

constexpr int kDim = kAttentionHeadDim;
// Short ones, so that small tests meet borders of segments and of levels.
constexpr AttentionSegments kShort = {64, 4, 3};
constexpr AttentionSegments kOne = {1024, 64, 1};

class AttentionCuda : public testing::TestWithParam<AttentionRoute> {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_CARD();
    std::vector<KernelFamily> families = Card::instance().families();
    families.push_back(
        attention_family(GetParam().path, GetParam().type, Card::instance().device->facts()));
    if (std::find(families.begin(), families.end(), GetParam().family) == families.end()) {
      GTEST_SKIP() << "no kernels of this family on this card";
    }
  }
  static bool prefill() { return GetParam().path == AttentionPath::prefill; }
  static std::vector<float> run(CardCache& cache, const CardColumns& columns,
                                const AttentionSegments& segments = kShort,
                                int64_t max_positions = 0) {
    return op_test::run_attention(GetParam(), cache, columns, segments, max_positions);
  }
  static double worst(CardCache& cache, const CardColumns& columns,
                      const AttentionSegments& segments = kShort) {
    const op_test::AttentionReference r = op_test::attention_reference(GetParam(), cache, columns);
    return worst_ratio(run(cache, columns, segments), r.value, r.bound);
  }
};

// Borders of pages, of segments (64, 128 and 256 positions) and of levels (256, 768), and every
// number of query tiles.
TEST_P(AttentionCuda, StaysWithinTheBoundAtEveryBorder) {
  const Heads heads{12, 2};
  CardCache cache = random_cache(GetParam().type, heads, 1040);
  for (const int64_t first : {0, 1, 62, 63, 64, 127, 128, 254, 255, 256, 257, 767, 768, 1023}) {
    for (const int64_t n_tokens : {1, 2, 3, 4, 5, 6, 7, 8}) {
      if (n_tokens > 2 && first != 255 && first != 767) continue;
      ASSERT_LE(worst(cache, CardColumns(heads, first, n_tokens, n_tokens != 2)), 1.0)
          << "first " << first << " T " << n_tokens;
    }
  }
}

TEST_P(AttentionCuda, ManyColumnsStayWithinTheBound) {
  if (GetParam().path == AttentionPath::decode) GTEST_SKIP() << "at most eight columns";
  const Heads heads{12, 2};
  CardCache cache = random_cache(GetParam().type, heads, 420);
  for (const int64_t n_tokens : {9, 10, 11, 21, 22, 42, 43, 64, 65, 129}) {
    for (const int64_t first : {0, 63, 200}) {
      if (first == 200 && n_tokens > 22) continue;
      ASSERT_LE(worst(cache, CardColumns(heads, first, n_tokens, first == 63)), 1.0)
          << "first " << first << " T " << n_tokens;
    }
  }
}

TEST_P(AttentionCuda, EveryGroupOfHeadsAndSharpWeights) {
  for (const Heads heads : {Heads{24, 4}, Heads{6, 1}, Heads{4, 2}, Heads{3, 3}, Heads{5, 1}}) {
    CardCache cache = random_cache(GetParam().type, heads, 330);
    for (const float q_scale : {0.01f, 40.0f}) {
      const CardColumns columns(heads, 326, 4, true, q_scale);
      ASSERT_LE(worst(cache, columns), 1.0) << heads.n_heads << " heads";
      ASSERT_LE(worst(cache, columns, kOne), 1.0) << heads.n_heads << " heads";
    }
  }
}

// Pages as decode leaves them: positions beyond the newest hold NaN.
TEST_P(AttentionCuda, NothingBeyondTheNewestPositionIsUsed) {
  const Heads heads{12, 2};
  CardCache cache = random_cache(GetParam().type, heads, 70);
  for (const float value : run(cache, CardColumns(heads, 66, 4, false))) {
    ASSERT_TRUE(std::isfinite(value));
  }
}

// I3, I4, I6: a column's bits do not depend on the others, on their number, on their places, or on
// the launch's width.
TEST_P(AttentionCuda, AColumnHasTheSameBitsAloneAndAmongOthers) {
  const Heads heads{12, 2};
  CardCache cache = random_cache(GetParam().type, heads, 560);
  const int64_t n = prefill() ? 40 : 8;
  const CardColumns columns(heads, 504, n, true);
  const std::vector<float> all = run(cache, columns);
  const int64_t width = int64_t{heads.n_heads} * kDim;
  for (const int64_t some : {1, 2, 3, 5, 7}) {
    for (const int64_t from : {int64_t{0}, int64_t{1}, n - some}) {
      const std::vector<float> part = run(cache, columns.part(from, some));
      ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + from * width))
          << some << " columns from " << from;
    }
  }
  EXPECT_EQ(run(cache, columns, kShort, 2000), all);
  for (const int n_multiprocessors : {1, 5, 132}) {
    ASSERT_EQ(op_test::run_attention(GetParam(), cache, columns, kShort, 0, n_multiprocessors), all)
        << n_multiprocessors;
  }
  for (int i = 0; i < 3; ++i) ASSERT_EQ(run(cache, columns), all);
}

// I3: half of the KV heads give the same bits as all of them.
TEST_P(AttentionCuda, HalfOfTheHeadsHaveTheSameBits) {
  const Heads heads{12, 2};
  const int64_t n = 200;
  const std::vector<float> k = random_floats(1, n * 2 * kDim, 2.0f);
  const std::vector<float> v = random_floats(2, n * 2 * kDim, 1.0f);
  CardCache cache(GetParam().type, heads, k, v);
  const CardColumns columns(heads, n - 5, 5, true);
  const std::vector<float> all = run(cache, columns);
  for (int rank = 0; rank < 2; ++rank) {
    const auto half = [&](const std::vector<float>& whole, int64_t width) {
      std::vector<float> part;
      for (int64_t i = rank * width; i < static_cast<int64_t>(whole.size()); i += 2 * width) {
        part.insert(part.end(), whole.begin() + i, whole.begin() + i + width);
      }
      return part;
    };
    CardCache half_cache(GetParam().type, {6, 1}, half(k, kDim), half(v, kDim));
    CardColumns half_columns = columns;
    half_columns.heads = {6, 1};
    half_columns.qg = half(columns.qg, int64_t{6} * 2 * kDim);
    ASSERT_EQ(run(half_cache, half_columns), half(all, int64_t{6} * kDim)) << "rank " << rank;
  }
}

// Small values far from the maximum and large ones near it: the running maximum must rescale.
TEST_P(AttentionCuda, AMaximumThatGrowsFromStepToStepRescales) {
  const Heads heads{6, 1};
  const int64_t n = 512;
  for (const bool growing : {true, false}) {
    std::vector<float> k(static_cast<size_t>(n * kDim));
    for (int64_t j = 0; j < n; ++j) {
      const float value = static_cast<float>(growing ? j : n - j) / 64;
      std::fill_n(k.begin() + j * kDim, kDim, value);
    }
    CardCache cache(GetParam().type, heads, k, random_floats(5, n * kDim, 1.0f));
    CardColumns columns(heads, n - 1, 1, false);
    std::fill(columns.qg.begin(), columns.qg.end(), 0.25f);
    EXPECT_LE(worst(cache, columns, kOne), 1.0);
    EXPECT_LE(worst(cache, columns, kShort), 1.0);
  }
}

// q = 0: all weights are 1, so a mean of small integers over a power of two of positions is exact
// until it is rounded to bfloat16.
TEST_P(AttentionCuda, MeanOfIntegersIsExact) {
  const Heads heads{12, 2};
  const int64_t n = 512;
  std::vector<float> v(static_cast<size_t>(n * 2 * kDim));
  PhiloxStream random(8);
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = i % 64 == 0 ? 127.0f : static_cast<float>(random.next_below(255)) - 127.0f;
  }
  CardCache cache(GetParam().type, heads, random_floats(4, n * 2 * kDim, 1.0f), v);
  CardColumns columns(heads, n - 1, 1, false);
  std::fill(columns.qg.begin(), columns.qg.end(), 0.0f);
  const std::vector<float> out = run(cache, columns);
  for (int h = 0; h < 12; ++h) {
    for (int d = 0; d < kDim; ++d) {
      int sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        sum += static_cast<int>(v[static_cast<size_t>((j * 2 + h / 6) * kDim + d)]);
      }
      ASSERT_EQ(out[static_cast<size_t>(h * kDim + d)],
                round_to_bf16(static_cast<float>(sum) / static_cast<float>(n)));
    }
  }
}

// A column asks with the key of one position, which no other one is near: it gets that position's
// integers, none of which is 0. What lands in a wrong row, column or page shows here as a wrong
// number.
TEST_P(AttentionCuda, AColumnGetsThePositionItAsksForExactly) {
  const Heads heads{12, 2};
  const int64_t n = 330;
  const int64_t width = int64_t{heads.n_kv_heads} * kDim;
  PhiloxStream random(9);
  std::vector<float> k(static_cast<size_t>(n * width));
  std::vector<float> v(k.size());
  for (float& value : k) value = random.next_below(2) == 0 ? -1.0f : 1.0f;
  for (size_t i = 0; i < v.size(); ++i) {
    const auto size = static_cast<float>(1 + random.next_below(127));
    v[i] = i % 64 == 0 ? 127.0f : random.next_below(2) == 0 ? -size : size;
  }
  CardCache cache(GetParam().type, heads, k, v);
  const int64_t n_tokens = GetParam().path == AttentionPath::decode ? 8 : 65;
  for (const int64_t first : {int64_t{0}, n - n_tokens}) {
    CardColumns columns(heads, first, n_tokens, false);
    const auto asked = [&](int64_t t, int64_t h) {
      const int64_t position = (t * heads.n_heads + h) * 29 % (first + t + 1);
      return (position * heads.n_kv_heads + h / 6) * kDim;
    };
    for (int64_t t = 0; t < n_tokens; ++t) {
      for (int64_t h = 0; h < heads.n_heads; ++h) {
        for (int64_t d = 0; d < kDim; ++d) {
          columns.qg[static_cast<size_t>((t * heads.n_heads + h) * 2 * kDim + d)] =
              4.0f * k[static_cast<size_t>(asked(t, h) + d)];
        }
      }
    }
    const std::vector<float> out = run(cache, columns);
    for (int64_t t = 0; t < n_tokens; ++t) {
      for (int64_t h = 0; h < heads.n_heads; ++h) {
        const auto got = out.begin() + (t * heads.n_heads + h) * kDim;
        ASSERT_TRUE(std::equal(got, got + kDim, v.begin() + asked(t, h)))
            << "first " << first << " column " << t << " head " << h;
      }
    }
  }
}

// Whole tiles of 64 and 128 rows, one column fewer and one more.
TEST_P(AttentionCuda, TilesOfRowsThatAreJustFull) {
  if (!prefill()) GTEST_SKIP() << "prefill alone has tiles of rows";
  for (const Heads heads : {Heads{2, 1}, Heads{4, 1}}) {
    CardCache cache = random_cache(GetParam().type, heads, 200);
    const int64_t full = 64 / heads.n_heads;
    for (const int64_t n_tokens :
         {full - 1, full, full + 1, 2 * full - 1, 2 * full, 2 * full + 1}) {
      for (const int64_t first : {0, 63}) {
        ASSERT_LE(worst(cache, CardColumns(heads, first, n_tokens, first == 0)), 1.0)
            << heads.n_heads << " heads, first " << first << " T " << n_tokens;
      }
    }
  }
}

// The paths agree with each other: what one of them gets wrong, and its bound hides, shows here as
// a difference larger than both roundings of the output.
TEST_P(AttentionCuda, AgreesWithTheSimpleKernel) {
  const Heads heads{12, 2};
  CardCache cache = random_cache(GetParam().type, heads, 700);
  const CardColumns columns(heads, 690, 6, false, 1.0f);
  const AttentionRoute simple{family_of_card(Card::instance().device->facts()), GetParam().type,
                              AttentionPath::simple};
  const std::vector<float> want = op_test::run_attention(simple, cache, columns, kShort, 0);
  const std::vector<float> got = run(cache, columns);
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::fabs(double{got[i]} - double{want[i]});
    size += std::fabs(double{want[i]});
  }
  EXPECT_LE(difference, 0x1p-8 * size);
}

INSTANTIATE_TEST_SUITE_P(Routes, AttentionCuda,
                         testing::ValuesIn(attention_routes().begin(), attention_routes().end()),
                         [](const auto& route) {
                           return std::string(family_name(route.param.family)) + "_" +
                                  std::string(kv_type_name(route.param.type)) + "_" +
                                  std::string(attention_path_name(route.param.path));
                         });

}  // namespace
}  // namespace lockstep
