#include <algorithm>
#include <cmath>

#include "engine/base/math.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/kv_write/kv_write.h"
#include "engine/ops/linear/linear.h"
#include "engine/ops/linear/linear_test_matrix.h"
#include "engine/ops/seeds/seed_case.h"

namespace lockstep::op_seeds {
namespace {

using namespace tolerance;

double judge_linear(Draw& draw, ThreadPool& pool, bool plant) {
  const Codec codec = kAllCodecs[draw.between(0, 6)];
  const int64_t rows = draw.between(1, 40);
  const int64_t cols = draw.multiple_of_16(512);
  const int64_t tokens = draw.between(1, 9);
  const Rounding rounding = draw.rounding();
  const TestMatrix matrix(codec, rows, cols, draw.data_seed);
  const auto x = draw.floats(tokens * cols, draw.scale(), rounding);
  std::vector<float> out(static_cast<size_t>(tokens * rows));
  linear({matrix.view(), x.data(), cols, out.data(), rows, tokens, rounding}, pool);
  std::vector<double> want(out.size());
  std::vector<double> condition(out.size());
  linear_oracle({matrix.view(), x.data(), cols, nullptr, 0, tokens, rounding}, want.data(),
                condition.data());
  std::vector<double> bound;
  for (size_t i = 0; i < want.size(); ++i) {
    bound.push_back(linear_bound(cols, want[i], condition[i], rounding));
  }
  return judged(std::move(out), want, bound, plant, draw);
}

struct AttentionProblem {
  int n_heads;
  int n_kv_heads;
  int dim;
  int64_t first;
  int64_t tokens;
  std::vector<float> q;  // ungated, dense
  std::vector<uint32_t> pages;
  std::vector<std::byte> memory;
  KvType type;

  KvView view() { return {type, n_kv_heads, dim, memory.data(), pages.data()}; }
};

AttentionProblem draw_attention(Draw& draw) {
  constexpr KvType kTypes[] = {KvType::fp32, KvType::bf16, KvType::fp16, KvType::int8};
  AttentionProblem p{};
  p.n_kv_heads = static_cast<int>(draw.between(1, 2));
  p.n_heads = p.n_kv_heads * static_cast<int>(draw.between(1, 6));
  p.dim = 64 * static_cast<int>(draw.between(1, 2));
  p.first = draw.between(0, 400);
  p.tokens = draw.between(1, 3);
  p.type = kTypes[draw.between(0, 3)];
  const int64_t width = int64_t{p.n_kv_heads} * p.dim;
  const int64_t n_positions = p.first + p.tokens;
  const int64_t n_pages = (n_positions + kPageTokens - 1) / kPageTokens;
  for (int64_t i = n_pages; i-- > 0;) p.pages.push_back(static_cast<uint32_t>(i));
  p.memory.resize(static_cast<size_t>(n_pages * kv_page_bytes(p.type, p.n_kv_heads, p.dim)));
  const auto k = draw.floats(n_positions * width, 2.0f);
  const auto v = draw.floats(n_positions * width, 1.0f);
  kv_write({p.view(), k.data(), v.data(), width, width, 0, n_positions});
  p.q = draw.floats(p.tokens * p.n_heads * p.dim, 4.0f);
  return p;
}

// With w_j the exact weights and e_j the relative error of weight j:
// |error| <= sum_j w_j (|v_j| + |out|) e_j,  e_j = score error + u (M - s_j) + u * roundings.
void add_attention_row(AttentionProblem& p, int64_t t, int head, double scale,
                       std::vector<double>& want, std::vector<double>& bound) {
  const int kv_head = head / (p.n_heads / p.n_kv_heads);
  const float* q = p.q.data() + (t * p.n_heads + head) * p.dim;
  const int64_t n = p.first + t + 1;
  std::vector<float> stored(static_cast<size_t>(p.dim));
  std::vector<double> score;
  std::vector<double> score_error;
  for (int64_t j = 0; j < n; ++j) {
    kv_read(p.view(), false, kv_head, j, stored.data());
    double sum = 0;
    double condition = 0;
    for (int d = 0; d < p.dim; ++d) {
      sum += double{q[d]} * stored[d];
      condition += std::fabs(double{q[d]} * stored[d]);
    }
    score.push_back(sum * scale);
    score_error.push_back(attention_score_error(p.dim, condition * scale));
  }
  const double top = *std::max_element(score.begin(), score.end());
  const double roundings =
      attention_weight_roundings(std::min(n, kAttentionSegment), n / kAttentionSegment + 1);
  std::vector<double> out(p.dim);
  std::vector<double> spread(p.dim);
  double total = 0;
  double total_error = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double w = exp_f64(score[j] - top);
    const double e = score_error[j] + kFloatUnit * (top - score[j] + roundings);
    total += w;
    total_error += w * e;
    kv_read(p.view(), true, kv_head, j, stored.data());
    for (int d = 0; d < p.dim; ++d) {
      out[d] += w * stored[d];
      spread[d] += w * e * std::fabs(double{stored[d]});
    }
  }
  for (int d = 0; d < p.dim; ++d) {
    want.push_back(out[d] / total);
    bound.push_back(kSecondOrder * (spread[d] + std::fabs(want.back()) * total_error) / total +
                    1e-37);
  }
}

double judge_attention(Draw& draw, ThreadPool& pool, bool plant) {
  AttentionProblem p = draw_attention(draw);
  const int64_t stride = int64_t{p.n_heads} * p.dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(p.dim));
  std::vector<float> out(p.q.size());
  attention({p.q.data(), stride, nullptr, 0, p.dim, p.dim, out.data(), stride, p.view(), p.first,
             p.tokens, p.n_heads, scale, Rounding::none},
            pool);
  std::vector<double> want;
  std::vector<double> bound;
  for (int64_t t = 0; t < p.tokens; ++t) {
    for (int h = 0; h < p.n_heads; ++h) add_attention_row(p, t, h, scale, want, bound);
  }
  return judged(std::move(out), want, bound, plant, draw);
}

}  // namespace

const std::vector<Case>& product_cases() {
  static const std::vector<Case> cases = {{"linear", judge_linear}, {"attention", judge_attention}};
  return cases;
}

}  // namespace lockstep::op_seeds
