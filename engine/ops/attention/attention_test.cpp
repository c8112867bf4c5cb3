#include "engine/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/float_formats.h"
#include "engine/base/math.h"
#include "engine/ops/common/guarded_floats.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/kv_write/kv_write.h"

namespace lockstep {
namespace {

using namespace tolerance;
using op_test::GuardedFloats;
using op_test::on_every_target;
using op_test::random_floats;
using op_test::random_integers;
using op_test::same_bits;
using op_test::worst_ratio;

struct Geometry {
  int n_heads;
  int n_kv_heads;
  int head_dim;
};

constexpr KvType kTypes[] = {KvType::fp32, KvType::bf16, KvType::fp16, KvType::int8};

// One layer's cache with n_positions written. Everything else in the pages is 0xff: NaN as float32,
// bfloat16, binary16 and as a scale, so that reading past the end shows.
struct Cache {
  KvType type;
  Geometry geometry;
  std::vector<uint32_t> page_table;
  std::vector<std::byte> memory;

  Cache(KvType t, Geometry g, const std::vector<float>& k, const std::vector<float>& v)
      : type(t), geometry(g) {
    const int64_t width = int64_t{g.n_kv_heads} * g.head_dim;
    const int64_t n_positions = static_cast<int64_t>(k.size()) / width;
    const int64_t n_pages = (n_positions + kPageTokens - 1) / kPageTokens + 1;
    for (int64_t i = 0; i < n_pages; ++i) {
      page_table.push_back(static_cast<uint32_t>(n_pages - 1 - i));
    }
    memory.assign(static_cast<size_t>(n_pages * kv_page_bytes(t, g.n_kv_heads, g.head_dim)),
                  std::byte{0xff});
    kv_write({view(), k.data(), v.data(), width, width, 0, n_positions});
  }
  KvView view() {
    return {type, geometry.n_kv_heads, geometry.head_dim, memory.data(), page_table.data()};
  }
};

// q and gate lie interleaved per head, as q_proj writes them.
struct Problem {
  Geometry geometry;
  int64_t first_position;
  int64_t n_tokens;
  bool gated;
  float scale;
  std::vector<float> qg;
  Cache cache;

  int64_t token_stride() const { return int64_t{2} * geometry.n_heads * geometry.head_dim; }
  int64_t out_stride() const { return int64_t{geometry.n_heads} * geometry.head_dim; }
  AttentionArgs args(float* out) {
    const int64_t head_stride = int64_t{2} * geometry.head_dim;
    return {qg.data(),
            token_stride(),
            gated ? qg.data() + geometry.head_dim : nullptr,
            token_stride(),
            head_stride,
            head_stride,
            out,
            out_stride(),
            cache.view(),
            first_position,
            n_tokens,
            geometry.n_heads,
            scale,
            Rounding::none};
  }
};

Problem make_problem(KvType type, Geometry g, int64_t first, int64_t n_tokens, bool gated,
                     int64_t extra_positions = 0) {
  const int64_t n = (first + n_tokens + extra_positions) * g.n_kv_heads * g.head_dim;
  const auto k = random_floats(1, n, 2.0f);
  const auto v = random_floats(2, n, 1.0f);
  // Scores of spread about 3: sharp weights, but not a single one.
  return {g,
          first,
          n_tokens,
          gated,
          1.0f / std::sqrt(static_cast<float>(g.head_dim)),
          random_floats(3, int64_t{2} * n_tokens * g.n_heads * g.head_dim, 4.0f),
          Cache(type, g, k, v)};
}

// Runs the tokens in spans of at most `span`; checks walls and inputs.
std::vector<float> run(Problem& problem, int64_t span = 1 << 20, int n_threads = 1,
                       Rounding rounding = Rounding::none) {
  ThreadPool pool(n_threads);
  GuardedFloats out(problem.n_tokens * problem.out_stride());
  const auto qg = problem.qg;
  const auto memory = problem.cache.memory;
  for (int64_t t = 0; t < problem.n_tokens; t += span) {
    AttentionArgs args = problem.args(out.data() + t * problem.out_stride());
    args.q += t * args.q_stride;
    if (args.gate != nullptr) args.gate += t * args.gate_stride;
    args.first_position += t;
    args.n_tokens = std::min(span, problem.n_tokens - t);
    args.rounding = rounding;
    attention(args, pool);
  }
  EXPECT_TRUE(out.walls_intact());
  EXPECT_TRUE(same_bits(qg, problem.qg));
  EXPECT_TRUE(memory == problem.cache.memory);
  return out.values();
}

enum class Mutant {
  none,
  sees_the_next_position,
  misses_the_last_position,
  misses_the_first_position,
  no_scale,
  no_gate,
  wrong_kv_head,
  stale_value,
};

struct Reference {
  std::vector<double> value, bound;
};

// Adds one query head's row. With w_j the exact weights, e_j the relative error of weight j:
// |error| <= sum_j w_j (|v_j| + |out|) e_j,  e_j = score error + u (M - s_j) + u * roundings. The
// maximum that a segment subtracts cancels; only the rounding of the differences s_j - m and m - M
// stays, and these differences add up to M - s_j.
void add_row(Problem& p, int64_t t, int h, Mutant mutant, Reference* r) {
  const int dim = p.geometry.head_dim;
  const KvView view = p.cache.view();
  int kv_head = h / (p.geometry.n_heads / p.geometry.n_kv_heads);
  if (mutant == Mutant::wrong_kv_head) kv_head = h % p.geometry.n_kv_heads;
  const float* q = p.qg.data() + t * p.token_stride() + int64_t{2} * h * dim;
  int64_t last = p.first_position + t;
  if (mutant == Mutant::sees_the_next_position) ++last;
  if (mutant == Mutant::misses_the_last_position) --last;
  const int64_t from = mutant == Mutant::misses_the_first_position ? 1 : 0;
  std::vector<float> stored(static_cast<size_t>(dim));
  std::vector<double> score, score_error;
  for (int64_t j = from; j <= last; ++j) {
    kv_read(view, false, kv_head, j, stored.data());
    double sum = 0;
    double condition = 0;
    for (int d = 0; d < dim; ++d) {
      sum += double{q[d]} * stored[d];
      condition += std::fabs(double{q[d]} * stored[d]);
    }
    const double scale = mutant == Mutant::no_scale ? 1.0 : double{p.scale};
    score.push_back(sum * scale);
    score_error.push_back(attention_score_error(dim, condition * scale));
  }
  const double top = *std::max_element(score.begin(), score.end());
  const auto n = static_cast<int64_t>(score.size());
  const double roundings =
      attention_weight_roundings(std::min(n, kAttentionSegment), n / kAttentionSegment + 1);
  std::vector<double> out(dim), spread(dim);  // sum w v; sum w |v| e
  double total = 0;
  double total_error = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double w = exp_f64(score[j] - top);
    const double e = score_error[j] + kFloatUnit * (top - score[j] + roundings);
    total += w;
    total_error += w * e;
    const int64_t stale = mutant == Mutant::stale_value ? 1 : 0;
    kv_read(view, true, kv_head, std::max<int64_t>(0, j + from - stale), stored.data());
    for (int d = 0; d < dim; ++d) {
      out[d] += w * stored[d];
      spread[d] += w * e * std::fabs(double{stored[d]});
    }
  }
  for (int d = 0; d < dim; ++d) {
    const double o = out[d] / total;
    double bound = kSecondOrder * (spread[d] + std::fabs(o) * total_error) / total + 1e-37;
    double factor = 1;
    if (p.gated) {
      factor = 1 / (1 + exp_f64(-double{q[dim + d]}));
      bound = factor * (bound + kSecondOrder * (kSiluRoundings + 1) * kFloatUnit * std::fabs(o));
    }
    r->value.push_back(mutant == Mutant::no_gate ? o : o * factor);
    r->bound.push_back(bound);
  }
}

Reference reference(Problem& p, Mutant mutant = Mutant::none) {
  Reference r;
  for (int64_t t = 0; t < p.n_tokens; ++t) {
    for (int h = 0; h < p.geometry.n_heads; ++h) add_row(p, t, h, mutant, &r);
  }
  return r;
}

struct Shape {
  Geometry geometry;
  int64_t first;
  int64_t n_tokens;
};

const Shape kShapes[] = {
    {{12, 2, 256}, 700, 1},  // decode, three segments
    {{6, 1, 64}, 255, 3},    // the segment border inside the span
    {{4, 1, 128}, 0, 70},    // prefill from nothing
    {{10, 2, 64}, 500, 30},  // a group of 5: tiles of 4 and 1
    {{8, 1, 64}, 31, 2},     // 6 and 2
    {{30, 1, 64}, 40, 1},    // more heads than a tile of dots holds
    {{3, 3, 64}, 64, 1},     // a group of 1
};

TEST(Attention, IsWithinTheDerivedBoundOfTheOracle) {
  for (const KvType type : kTypes) {
    for (const Shape& shape : kShapes) {
      Problem p = make_problem(type, shape.geometry, shape.first, shape.n_tokens, true);
      const Reference exact = reference(p);
      std::vector<double> oracle(exact.value.size());
      attention_oracle(p.args(nullptr), oracle.data());
      EXPECT_LE(worst_ratio(exact.value, oracle, exact.bound), 1e-6);
      on_every_target([&](const std::string& target) {
        SCOPED_TRACE(target);
        EXPECT_LE(worst_ratio(run(p), oracle, exact.bound), 1.0);
      });
    }
  }
}

TEST(Attention, BoundCatchesMistakes) {
  Problem p = make_problem(KvType::bf16, {12, 2, 64}, 250, 12, true, 1);
  const auto out = run(p);
  const Reference exact = reference(p);
  EXPECT_LE(worst_ratio(out, exact.value, exact.bound), 1.0);
  for (const Mutant mutant : {Mutant::sees_the_next_position, Mutant::misses_the_last_position,
                              Mutant::misses_the_first_position, Mutant::no_scale, Mutant::no_gate,
                              Mutant::wrong_kv_head, Mutant::stale_value}) {
    EXPECT_GT(worst_ratio(out, reference(p, mutant).value, exact.bound), 10.0)
        << static_cast<int>(mutant);
  }
}

// With q = 0 all weights are 1 and every sum is one of small integers: the mean is exact when the
// number of positions is a power of two, across segments too.
TEST(Attention, MeanOfIntegersIsExact) {
  on_every_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const KvType type : kTypes) {
      const Geometry g{6, 1, 64};
      auto v = random_integers(4, int64_t{1024} * g.head_dim, 127);
      for (int64_t j = 0; j < 1024; ++j) v[j * g.head_dim] = 127.0f;  // int8: scale 1
      const auto k = random_floats(5, static_cast<int64_t>(v.size()), 1.0f);
      Problem p{g,
                0,
                1024,
                false,
                0.125f,
                std::vector<float>(1024 * 12 * 64, 0.0f),
                Cache(type, g, k, v)};
      const auto out = run(p);
      for (int64_t n = 1; n <= 1024; n *= 2) {
        for (int64_t d = 0; d < g.head_dim; ++d) {
          double sum = 0;
          for (int64_t j = 0; j < n; ++j) sum += v[j * g.head_dim + d];
          for (int h = 0; h < 6; ++h) {
            ASSERT_EQ(out[((n - 1) * 6 + h) * g.head_dim + d],
                      static_cast<float>(sum / static_cast<double>(n)));
          }
        }
      }
    }
  });
}

// One position scores 0 and all others -2000: their weights vanish and its V comes out bit for bit.
TEST(Attention, PicksOneValueExactly) {
  on_every_target([](const std::string& target) {
    SCOPED_TRACE(target);
    const Geometry g{2, 1, 64};
    const int64_t n = 600;
    const auto v = random_floats(6, n * g.head_dim, 1.0f);
    for (const int64_t chosen : {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{511}, n - 1}) {
      std::vector<float> k(static_cast<size_t>(n * g.head_dim), 0.0f);
      for (int64_t j = 0; j < n; ++j) k[j * g.head_dim] = j == chosen ? 0.0f : -2000.0f;
      Problem p{
          g, n - 1, 1, false, 1.0f, std::vector<float>(4 * 64, 1.0f), Cache(KvType::fp32, g, k, v)};
      const auto out = run(p);
      for (int64_t i = 0; i < 2 * g.head_dim; ++i) {
        ASSERT_EQ(out[i], v[chosen * g.head_dim + i % g.head_dim]);
      }
    }
  });
}

TEST(Attention, BitsOfARowDependOnNothingElse) {
  for (const KvType type : kTypes) {
    Problem p = make_problem(type, {12, 2, 64}, 238, 40, true);
    const auto all = run(p);
    on_every_target([&](const std::string& target) {
      SCOPED_TRACE(target);
      for (const int64_t span : {1, 2, 3, 7, 40}) {
        EXPECT_TRUE(same_bits(all, run(p, span))) << span;
      }
      for (const int n_threads : {2, 3, 5}) {
        EXPECT_TRUE(same_bits(all, run(p, 40, n_threads))) << n_threads;
        EXPECT_TRUE(same_bits(all, run(p, 4, n_threads))) << n_threads;
      }
    });
  }
}

TEST(Attention, ManyBlocksInAnyOrderGiveTheSameBits) {
  Problem p = make_problem(KvType::bf16, {12, 2, 32}, 5, 330, false);
  const auto all = run(p);
  on_every_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    EXPECT_TRUE(same_bits(all, run(p)));
    EXPECT_TRUE(same_bits(all, run(p, 1 << 20, 2)));
    EXPECT_TRUE(same_bits(all, run(p, 97, 3)));
    EXPECT_TRUE(same_bits(all, run(p, 1)));
  });
}

TEST(Attention, DenseQueriesEqualInterleavedOnes) {
  Problem p = make_problem(KvType::bf16, {6, 1, 64}, 20, 5, true);
  const auto interleaved = run(p);
  std::vector<float> q, gate, out(interleaved.size());
  for (size_t i = 0; i < p.qg.size(); ++i) (i / 64 % 2 == 0 ? q : gate).push_back(p.qg[i]);
  AttentionArgs args = p.args(out.data());
  args.q = q.data();
  args.gate = gate.data();
  args.q_stride = args.gate_stride = p.out_stride();
  args.q_head_stride = args.gate_head_stride = 64;
  ThreadPool pool(1);
  attention(args, pool);
  EXPECT_TRUE(same_bits(interleaved, out));
}

TEST(Attention, RoundsBeforeAndAfterTheGate) {
  Problem p = make_problem(KvType::bf16, {6, 1, 64}, 20, 5, false);
  const auto plain = run(p);
  const auto rounded = run(p, 5, 1, Rounding::bf16);
  for (size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(rounded[i], round_to_bf16(plain[i]));
  p.gated = true;
  const Reference exact = reference(p);
  const auto gated = run(p, 5, 1, Rounding::bf16);
  for (size_t i = 0; i < plain.size(); ++i) {
    ASSERT_EQ(gated[i], round_to_bf16(gated[i]));
    const double two_roundings = kSecondOrder * 2 * kBf16Unit * std::fabs(exact.value[i]);
    ASSERT_LE(std::fabs(gated[i] - exact.value[i]), exact.bound[i] + two_roundings);
  }
}

TEST(Attention, PoisonStaysVisible) {
  Problem p = make_problem(KvType::bf16, {6, 1, 64}, 300, 1, false);
  p.qg[0] = std::nanf("");
  const auto out = run(p);
  for (int64_t i = 0; i < 6 * 64; ++i) EXPECT_EQ(std::isnan(out[i]), i < 64);
}

}  // namespace
}  // namespace lockstep
