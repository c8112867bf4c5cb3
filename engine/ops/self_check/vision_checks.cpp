// The tower's ops where their results are exact: rows of equal magnitude, equal scores (the mean of
// the values), GELU far from 0, short weights, and the rotation of a unit vector.
#include <cmath>
#include <vector>

#include "engine/base/math.h"
#include "engine/ops/bias_add/bias_add.h"
#include "engine/ops/gelu/gelu.h"
#include "engine/ops/layernorm/layernorm.h"
#include "engine/ops/self_check/checks.h"
#include "engine/ops/self_check/exact_match.h"
#include "engine/ops/vision_attention/vision_attention.h"
#include "engine/ops/vision_rope/vision_rope.h"
#include "engine/ops/weighted_embedding/weighted_embedding.h"

namespace lockstep {
namespace {

float small(int i) {
  return static_cast<float>((i * 7 + i / 5) % 17 - 8);
}

std::vector<float> small_values(int n, int first = 0) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(small(first + i));
  return values;
}

// Mean 3, deviations of one magnitude: the root is that magnitude.
void check_layernorm(ThreadPool& pool) {
  constexpr int kWidth = 48;
  const std::vector<float> weight = small_values(kWidth);
  const std::vector<float> bias = small_values(kWidth, 100);
  std::vector<float> x;
  std::vector<float> expected;
  for (int row = 0; row < 3; ++row) {
    for (int i = 0; i < kWidth; ++i) {
      const float sign = i % 2 == 0 ? 1.0f : -1.0f;
      x.push_back(3.0f + std::ldexp(sign, row));
      expected.push_back(sign * weight[static_cast<size_t>(i)] + bias[static_cast<size_t>(i)]);
    }
  }
  std::vector<float> out = unwritten(expected.size());
  layernorm({x.data(), weight.data(), bias.data(), out.data(), 3, kWidth, 0.0f, Rounding::none},
            pool);
  require_exact("layernorm", out, expected);
}

void check_gelu(ThreadPool& pool) {
  std::vector<float> x;
  std::vector<float> expected;
  for (int i = 0; i < 41; ++i) {
    const float value = i % 3 == 0 ? 0.0f : i % 3 == 1 ? 20.0f + small(i) : -60.0f - small(i);
    x.push_back(value);
    expected.push_back(value > 0.0f ? value : 0.0f);
  }
  for (const GeluKind kind : {GeluKind::exact, GeluKind::tanh}) {
    std::vector<float> out = x;
    gelu(out.data(), static_cast<int64_t>(out.size()), kind, Rounding::none, pool);
    require_exact(kind == GeluKind::exact ? "gelu exact" : "gelu tanh", out, expected);
  }
}

// Queries of zero see all of 32 keys alike: the mean of the values.
void check_attention(ThreadPool& pool) {
  constexpr int kTokens = 32;
  constexpr int kHeadDim = 72;
  const std::vector<float> q(kTokens * kHeadDim, 0.0f);
  const std::vector<float> k = small_values(kTokens * kHeadDim);
  const std::vector<float> v = small_values(kTokens * kHeadDim, 50);
  std::vector<float> expected;
  for (int t = 0; t < kTokens; ++t) {
    for (int d = 0; d < kHeadDim; ++d) {
      float sum = 0.0f;
      for (int key = 0; key < kTokens; ++key) sum += v[static_cast<size_t>(key * kHeadDim + d)];
      expected.push_back(sum / kTokens);
    }
  }
  std::vector<float> out = unwritten(expected.size());
  vision_attention({q.data(), k.data(), v.data(), kHeadDim, out.data(), kTokens, 1, kHeadDim, 0.5f,
                    Rounding::none},
                   pool);
  require_exact("vision_attention", out, expected);
}

void check_sums(ThreadPool& pool) {
  constexpr int kWidth = 20;
  const std::vector<float> bias = small_values(kWidth, 30);
  std::vector<float> x = small_values(2 * kWidth);
  std::vector<float> expected = x;
  for (int i = 0; i < 2 * kWidth; ++i) {
    expected[static_cast<size_t>(i)] += bias[static_cast<size_t>(i % kWidth)];
  }
  bias_add(x.data(), bias.data(), 2, kWidth, Rounding::none, pool);
  require_exact("bias_add", x, expected);

  const std::vector<float> table = small_values(4 * kWidth);
  const WeightedRows source{{3, 0, 2, 1}, {0.5f, 0.25f, 0.125f, 0.125f}};
  std::vector<float> out = unwritten(kWidth);
  std::vector<float> sum(kWidth, 0.0f);
  for (size_t j = 0; j < 4; ++j) {
    for (size_t i = 0; i < kWidth; ++i) {
      sum[i] += source.weights[j] * table[static_cast<size_t>(source.rows[j]) * kWidth + i];
    }
  }
  weighted_embedding({table.data(), 4, kWidth, &source, out.data(), 1, Rounding::none}, pool);
  require_exact("weighted_embedding", out, sum);
}

void check_rotation(ThreadPool& pool) {
  constexpr int kHeadDim = 24;
  std::vector<float> x = small_values(2 * kHeadDim);
  const std::vector<float> inv_freq = {1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
  // At the origin nothing moves. In row 2 the first pair, a unit vector, does; the other
  // frequencies are 0.
  const GridPosition positions[2] = {{0, 0}, {2, 0}};
  x[kHeadDim] = 1.0f;
  x[kHeadDim + kHeadDim / 2] = 0.0f;
  std::vector<float> out = x;
  double sine = 0.0;
  double cosine = 0.0;
  sincos_f64(2.0, &sine, &cosine);
  x[kHeadDim] = static_cast<float>(cosine);
  x[kHeadDim + kHeadDim / 2] = static_cast<float>(sine);
  vision_rope({out.data(), kHeadDim, positions, inv_freq.data(), 2, 1, kHeadDim, Rounding::none},
              pool);
  require_exact("vision_rope", out, x);
}

}  // namespace

void check_vision_ops(ThreadPool& pool) {
  check_layernorm(pool);
  check_gelu(pool);
  check_attention(pool);
  check_sums(pool);
  check_rotation(pool);
}

}  // namespace lockstep
