// Decode attention on a card, against float64 and against itself.
#include "engine/ops/attention/cuda/attention_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/math.h"
#include "engine/base/philox.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/common/cuda/device_test_util.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/kv_write/kv_write.h"

namespace lockstep {
namespace {

using op_test::Card;
using op_test::GuardedBytes;
using op_test::random_floats;

constexpr int kDim = kAttentionHeadDim;

struct Heads {
  int n_heads;
  int n_kv_heads;
};

// Pages of one layer on the host and on the card, in an order that is not ascending. What is not
// written is 0xff: NaN as a scale.
struct Cache {
  Cache(Heads heads, const std::vector<float>& k, const std::vector<float>& v) : heads_(heads) {
    const int64_t width = int64_t{heads.n_kv_heads} * kDim;
    n_positions_ = static_cast<int64_t>(k.size()) / width;
    const int64_t n_pages = (n_positions_ + kPageTokens - 1) / kPageTokens;
    for (int64_t i = 0; i < n_pages; ++i) pages_.push_back(static_cast<uint32_t>(n_pages - i));
    memory_.assign(
        static_cast<size_t>((n_pages + 1) * kv_page_bytes(KvType::int8, heads.n_kv_heads, kDim)),
        std::byte{0xff});
    kv_write({view(), k.data(), v.data(), width, width, 0, n_positions_});
  }
  KvView view() { return {KvType::int8, heads_.n_kv_heads, kDim, memory_.data(), pages_.data()}; }
  int64_t n_positions() const { return n_positions_; }
  const std::vector<std::byte>& memory() const { return memory_; }
  const std::vector<uint32_t>& pages() const { return pages_; }

 private:
  Heads heads_;
  int64_t n_positions_ = 0;
  std::vector<std::byte> memory_;
  std::vector<uint32_t> pages_;
};

Cache random_cache(Heads heads, int64_t n_positions) {
  const int64_t n = n_positions * heads.n_kv_heads * kDim;
  return {heads, random_floats(1, n, 2.0f), random_floats(2, n, 1.0f)};
}

std::vector<uint16_t> bf16_of(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(float_to_bf16(value));
  return bits;
}

// q and gate interleaved per head, as q_proj writes them: [n_tokens, n_heads, 2, 256].
struct Columns {
  Columns(Heads h, int64_t first, int64_t n, bool with_gate, float q_scale = 4.0f)
      : heads(h), first_position(first), n_tokens(n), gated(with_gate) {
    qg = random_floats(3, n * h.n_heads * 2 * kDim, q_scale, Rounding::bf16);
  }
  Heads heads;
  int64_t first_position;
  int64_t n_tokens;
  bool gated;
  std::vector<float> qg;

  // Columns [from, from + n) alone.
  Columns part(int64_t from, int64_t n) const {
    Columns some = *this;
    const int64_t width = int64_t{heads.n_heads} * 2 * kDim;
    some.qg.assign(qg.begin() + from * width, qg.begin() + (from + n) * width);
    some.first_position += from;
    some.n_tokens = n;
    return some;
  }
};

constexpr float kScale = 0.0625f;

std::vector<float> run(Cache& cache, const Columns& columns, int segment,
                       int64_t max_positions = 0) {
  const Heads heads = columns.heads;
  const AttentionCudaPlan plan =
      plan_attention_cuda(heads.n_heads, heads.n_kv_heads, kDim, KvType::int8,
                          std::max(max_positions, columns.first_position + columns.n_tokens),
                          segment, Card::instance().device->facts().arch);
  const GuardedBytes qg(bf16_of(columns.qg));
  const GuardedBytes pool(cache.memory());
  const GuardedBytes pages(cache.pages());
  const GuardedBytes first(std::vector<int32_t>{static_cast<int32_t>(columns.first_position)});
  const GuardedBytes partials(plan.partial_bytes);
  const int64_t out_stride = int64_t{heads.n_heads} * kDim + 8;
  const GuardedBytes out(columns.n_tokens * out_stride * 2);
  AttentionCudaArgs args{plan};
  args.q = qg.as<uint16_t>();
  args.q_stride = args.gate_stride = int64_t{2} * heads.n_heads * kDim;
  args.q_head_stride = args.gate_head_stride = 2 * kDim;
  args.gate = columns.gated ? args.q + kDim : nullptr;
  args.out = out.as<uint16_t>();
  args.out_stride = out_stride;
  args.pool = pool.data();
  args.page_table = pages.as<uint32_t>();
  args.first_position = first.as<int32_t>();
  args.n_tokens = static_cast<int>(columns.n_tokens);
  args.scale = kScale;
  args.partials = partials.data();
  attention_cuda(args, *Card::instance().stream);
  Card::instance().stream->synchronize();
  EXPECT_TRUE(out.walls_intact());
  EXPECT_TRUE(partials.walls_intact());
  std::vector<float> dense;
  const std::vector<uint16_t> bits = out.values<uint16_t>();
  for (int64_t t = 0; t < columns.n_tokens; ++t) {
    for (int64_t i = 0; i < out_stride; ++i) {
      const uint16_t b = bits[static_cast<size_t>(t * out_stride + i)];
      if (i < out_stride - 8) {
        dense.push_back(bf16_to_float(b));
      } else {
        EXPECT_EQ(b, 0xffff) << "wrote beyond row " << t;
      }
    }
  }
  return dense;
}

struct Reference {
  std::vector<double> value;
  std::vector<double> bound;
};

// One head of one column. With exact weights w_j: |error| <= sum w_j (|v_j| + |out|) e_j, and V's
// rounding; then the output's two roundings.
void add_row(Cache& cache, const Columns& c, int64_t t, int h, Reference& r) {
  const int kv_head = h / (c.heads.n_heads / c.heads.n_kv_heads);
  const float* q = c.qg.data() + (t * c.heads.n_heads + h) * 2 * kDim;
  const int64_t n = c.first_position + t + 1;
  std::vector<float> stored(kDim);
  std::vector<double> score(static_cast<size_t>(n));
  std::vector<double> error(score.size());
  for (int64_t j = 0; j < n; ++j) {
    kv_read(cache.view(), false, kv_head, j, stored.data());
    double condition = 0;
    for (int d = 0; d < kDim; ++d) {
      const double product = double{q[d]} * stored[static_cast<size_t>(d)];
      score[static_cast<size_t>(j)] += product * kScale;
      condition += std::fabs(product) * kScale;
    }
    error[static_cast<size_t>(j)] = tolerance::attention_cuda_score_error(condition);
  }
  const double top = *std::max_element(score.begin(), score.end());
  std::vector<double> out(kDim), spread(kDim), magnitude(kDim), plain(kDim);
  double total = 0;
  double total_error = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double w = exp_f64(score[static_cast<size_t>(j)] - top);
    const double e = w * (error[static_cast<size_t>(j)] +
                          2 * tolerance::kFloatUnit * (top - score[static_cast<size_t>(j)]) +
                          tolerance::attention_cuda_weight_error(n)) +
                     tolerance::kAttentionCudaFlushed;
    total += w;
    total_error += e;
    kv_read(cache.view(), true, kv_head, j, stored.data());
    for (size_t d = 0; d < kDim; ++d) {
      const double v = stored[d];
      out[d] += w * v;
      magnitude[d] += w * std::fabs(v);
      spread[d] += e * std::fabs(v);
    }
  }
  for (size_t d = 0; d < kDim; ++d) {
    const double o = out[d] / total;
    double bound = tolerance::kSecondOrder *
                       (spread[d] + std::fabs(o) * total_error +
                        magnitude[d] * tolerance::kAttentionCudaValueUnit) /
                       total +
                   0x1p-24;
    bound = tolerance::with_output_rounding(o, bound, Rounding::bf16);
    double factor = 1;
    if (c.gated) {
      factor = 1 / (1 + exp_f64(-double{q[kDim + d]}));
      bound = tolerance::with_output_rounding(
          o * factor, factor * bound * (1 + 16 * tolerance::kFloatUnit), Rounding::bf16);
    }
    r.value.push_back(o * factor);
    r.bound.push_back(bound);
  }
}

Reference reference(Cache& cache, const Columns& columns) {
  Reference r;
  for (int64_t t = 0; t < columns.n_tokens; ++t) {
    for (int h = 0; h < columns.heads.n_heads; ++h) add_row(cache, columns, t, h, r);
  }
  return r;
}

class AttentionCuda : public testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_CARD();
    if (Card::instance().device->facts().arch < 80) GTEST_SKIP() << "no route on this card";
  }
};

TEST(AttentionCudaPlan, WhatIsNotRegisteredIsAnError) {
  EXPECT_THROW(plan_attention_cuda(24, 4, 128, KvType::int8, 1024, 512, 90), Error);
  EXPECT_THROW(plan_attention_cuda(24, 4, 256, KvType::fp32, 1024, 512, 90), Error);
  EXPECT_THROW(plan_attention_cuda(28, 4, 256, KvType::int8, 1024, 512, 90), Error);
  EXPECT_THROW(plan_attention_cuda(24, 4, 256, KvType::int8, 1024, 512, 70), Error);
  const AttentionCudaPlan plan = plan_attention_cuda(24, 4, 256, KvType::int8, 1025, 512, 90);
  EXPECT_EQ(plan.partial_bytes, int64_t{4} * 3 * 6 * 8 * 258 * 4);
}

// Borders of pages (64), steps (128) and segments (256), and every number of query tiles.
TEST_F(AttentionCuda, StaysWithinTheBoundAtEveryBorder) {
  const Heads heads{12, 2};
  Cache cache = random_cache(heads, 1040);
  for (const int64_t first :
       {0, 1, 62, 63, 64, 127, 128, 129, 254, 255, 256, 257, 511, 700, 1023}) {
    for (const int64_t n_tokens : {1, 2, 3, 4, 5, 6, 8}) {
      if (n_tokens > 2 && first != 255 && first != 700) continue;
      const Columns columns(heads, first, n_tokens, n_tokens != 2);
      const std::vector<float> out = run(cache, columns, 256);
      const Reference r = reference(cache, columns);
      ASSERT_LE(op_test::worst_ratio(out, r.value, r.bound), 1.0)
          << "first " << first << " T " << n_tokens;
    }
  }
}

TEST_F(AttentionCuda, AllHeadsOfTheWholeModelAndSharpWeights) {
  const Heads heads{24, 4};
  Cache cache = random_cache(heads, 600);
  for (const float q_scale : {0.01f, 40.0f}) {
    const Columns columns(heads, 590, 4, true, q_scale);
    const Reference r = reference(cache, columns);
    ASSERT_LE(op_test::worst_ratio(run(cache, columns, 128), r.value, r.bound), 1.0);
    ASSERT_LE(op_test::worst_ratio(run(cache, columns, 512), r.value, r.bound), 1.0);
  }
}

// Pages as decode leaves them: positions beyond the newest hold NaN scales.
TEST_F(AttentionCuda, NothingBeyondTheNewestPositionIsUsed) {
  const Heads heads{12, 2};
  Cache cache = random_cache(heads, 70);
  const Columns columns(heads, 66, 4, false);
  for (const float value : run(cache, columns, 256)) ASSERT_TRUE(std::isfinite(value));
}

// I4, I6: a column's bits do not depend on the others, on their number, or on the launch's width.
TEST_F(AttentionCuda, AColumnHasTheSameBitsAloneAndAmongOthers) {
  const Heads heads{12, 2};
  Cache cache = random_cache(heads, 1300);
  const Columns columns(heads, 1250, 8, true);
  const std::vector<float> all = run(cache, columns, 256);
  const int64_t width = int64_t{heads.n_heads} * kDim;
  for (const int64_t n : {1, 2, 3, 5}) {
    for (const int64_t from : {int64_t{0}, 8 - n}) {
      const std::vector<float> some = run(cache, columns.part(from, n), 256);
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + from * width))
          << n << " columns from " << from;
    }
  }
  EXPECT_EQ(run(cache, columns, 256, 5000), all);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(run(cache, columns, 256), all);
}

// Small values far from the maximum and large ones near it: the running maximum must rescale.
TEST_F(AttentionCuda, AMaximumThatGrowsFromStepToStepRescales) {
  const Heads heads{6, 1};
  const int64_t n = 512;
  std::vector<float> k(static_cast<size_t>(n * kDim));
  for (int64_t j = 0; j < n; ++j) {
    for (int d = 0; d < kDim; ++d)
      k[static_cast<size_t>(j * kDim + d)] = static_cast<float>(j) / 64;
  }
  Cache cache(heads, k, random_floats(5, n * kDim, 1.0f));
  Columns columns(heads, n - 1, 1, false);
  std::fill(columns.qg.begin(), columns.qg.end(), 0.25f);
  const Reference r = reference(cache, columns);
  EXPECT_LE(op_test::worst_ratio(run(cache, columns, 512), r.value, r.bound), 1.0);
}

// q = 0: all weights are 1, so a mean of codes with scale 1 over a power of two of positions is
// exact until it is rounded to bfloat16.
TEST_F(AttentionCuda, MeanOfIntegersIsExact) {
  const Heads heads{12, 2};
  const int64_t n = 512;
  std::vector<float> v(static_cast<size_t>(n * 2 * kDim));
  PhiloxStream random(8);
  for (size_t i = 0; i < v.size(); ++i) {
    v[i] = i % 64 == 0 ? 127.0f : static_cast<float>(random.next_below(255)) - 127.0f;
  }
  Cache cache(heads, random_floats(4, n * 2 * kDim, 1.0f), v);
  Columns columns(heads, n - 1, 1, false);
  std::fill(columns.qg.begin(), columns.qg.end(), 0.0f);
  const std::vector<float> out = run(cache, columns, 256);
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

}  // namespace
}  // namespace lockstep
