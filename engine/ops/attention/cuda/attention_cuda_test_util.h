// What tests of attention on a card share: caches, columns, a launch between guard walls, and the
// float64 reference with its bound.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/base/math.h"
#include "engine/ops/attention/cuda/attention_cuda.h"
#include "engine/ops/common/cuda/device_test_util.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/kv_write/kv_write.h"

namespace lockstep::op_test {

inline constexpr float kAttentionScale = 0.0625f;

struct Heads {
  int n_heads;
  int n_kv_heads;
};

// Pages of one layer on the host, in an order that is not ascending. What is not written is 0xff: a
// NaN in every float format.
class CardCache {
 public:
  CardCache(KvType type, Heads heads, const std::vector<float>& k, const std::vector<float>& v)
      : type_(type), heads_(heads) {
    const int64_t width = int64_t{heads.n_kv_heads} * kAttentionHeadDim;
    n_positions_ = static_cast<int64_t>(k.size()) / width;
    const int64_t n_pages = (n_positions_ + kPageTokens - 1) / kPageTokens;
    for (int64_t i = 0; i < n_pages; ++i) pages_.push_back(static_cast<uint32_t>(n_pages - i));
    memory_.assign(static_cast<size_t>((n_pages + 1) *
                                       kv_page_bytes(type, heads.n_kv_heads, kAttentionHeadDim)),
                   std::byte{0xff});
    kv_write({view(), k.data(), v.data(), width, width, 0, n_positions_});
  }
  KvView view() {
    return {type_, heads_.n_kv_heads, kAttentionHeadDim, memory_.data(), pages_.data()};
  }
  KvType type() const { return type_; }
  const std::vector<std::byte>& memory() const { return memory_; }
  const std::vector<uint32_t>& pages() const { return pages_; }

 private:
  KvType type_;
  Heads heads_;
  int64_t n_positions_ = 0;
  std::vector<std::byte> memory_;
  std::vector<uint32_t> pages_;
};

inline CardCache random_cache(KvType type, Heads heads, int64_t n_positions) {
  const int64_t n = n_positions * heads.n_kv_heads * kAttentionHeadDim;
  return {type, heads, random_floats(1, n, 2.0f), random_floats(2, n, 1.0f)};
}

// q and gate interleaved per head, as q_proj writes them: [n_tokens, n_heads, 2, 256].
struct CardColumns {
  CardColumns(Heads h, int64_t first, int64_t n, bool with_gate, float q_scale = 4.0f)
      : heads(h), first_position(first), n_tokens(n), gated(with_gate) {
    qg = random_floats(3, n * h.n_heads * 2 * kAttentionHeadDim, q_scale, Rounding::bf16);
  }
  Heads heads;
  int64_t first_position;
  int64_t n_tokens;
  bool gated;
  std::vector<float> qg;

  // Columns [from, from + n) alone.
  CardColumns part(int64_t from, int64_t n) const {
    CardColumns some = *this;
    const int64_t width = int64_t{heads.n_heads} * 2 * kAttentionHeadDim;
    some.qg.assign(qg.begin() + from * width, qg.begin() + (from + n) * width);
    some.first_position += from;
    some.n_tokens = n;
    return some;
  }
};

inline std::vector<float> run_attention(const AttentionRoute& route, CardCache& cache,
                                        const CardColumns& columns,
                                        const AttentionSegments& segments, int64_t max_positions,
                                        int n_multiprocessors = 4) {
  const Heads heads = columns.heads;
  const AttentionCudaPlan plan =
      plan_attention_cuda({heads.n_heads, heads.n_kv_heads, kAttentionHeadDim, route.type,
                           std::max(max_positions, columns.first_position + columns.n_tokens)},
                          route.path, route.family, segments);
  std::vector<uint16_t> bits_of_qg;
  for (const float value : columns.qg) bits_of_qg.push_back(float_to_bf16(value));
  const GuardedBytes qg(bits_of_qg);
  const GuardedBytes pool(cache.memory());
  const GuardedBytes pages(cache.pages());
  const GuardedBytes first(std::vector<int32_t>{static_cast<int32_t>(columns.first_position)});
  const GuardedBytes partials(plan.partial_bytes);
  const int64_t out_stride = int64_t{heads.n_heads} * kAttentionHeadDim + 8;
  const GuardedBytes out(columns.n_tokens * out_stride * 2);
  AttentionCudaArgs args{plan};
  args.q = qg.as<uint16_t>();
  args.q_stride = args.gate_stride = int64_t{2} * heads.n_heads * kAttentionHeadDim;
  args.q_head_stride = args.gate_head_stride = 2 * kAttentionHeadDim;
  args.gate = columns.gated ? args.q + kAttentionHeadDim : nullptr;
  args.out = out.as<uint16_t>();
  args.out_stride = out_stride;
  args.pool = pool.data();
  args.page_table = pages.as<uint32_t>();
  args.first_position = first.as<int32_t>();
  args.n_tokens = static_cast<int>(columns.n_tokens);
  args.scale = kAttentionScale;
  args.partials = partials.data();
  args.n_multiprocessors = n_multiprocessors;
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

inline tolerance::AttentionCudaErrors attention_errors(const AttentionRoute& route) {
  if (route.path == AttentionPath::simple) return tolerance::kAttentionSimple;
  if (route.family == KernelFamily::sm70) {
    return route.type == KvType::int8 ? tolerance::kDecodeSm70Int8 : tolerance::kSm70Half;
  }
  if (route.type == KvType::int8) {
    return route.path == AttentionPath::prefill ? tolerance::kPrefillSm80Int8
                                                : tolerance::kDecodeSm80Int8;
  }
  return route.type == KvType::fp16 ? tolerance::kSm80Fp16 : tolerance::kSm80Bf16;
}

struct AttentionReference {
  std::vector<double> value;
  std::vector<double> bound;
};

// Scores of one head of one column, and how far the card's may be from them.
struct ScoredRow {
  std::vector<double> score;
  std::vector<double> error;
};

inline ScoredRow score_row(const tolerance::AttentionCudaErrors& errors, CardCache& cache,
                           const float* q, int kv_head, int64_t n) {
  ScoredRow row{std::vector<double>(static_cast<size_t>(n)),
                std::vector<double>(static_cast<size_t>(n))};
  std::vector<float> stored(kAttentionHeadDim);
  double q_sum = 0;
  for (int d = 0; d < kAttentionHeadDim; ++d) q_sum += std::fabs(double{q[d]}) * kAttentionScale;
  for (size_t j = 0; j < row.score.size(); ++j) {
    kv_read(cache.view(), false, kv_head, static_cast<int64_t>(j), stored.data());
    double condition = 0;
    for (size_t d = 0; d < kAttentionHeadDim; ++d) {
      const double product = double{q[d]} * stored[d] * kAttentionScale;
      row.score[j] += product;
      condition += std::fabs(product);
    }
    row.error[j] =
        (errors.score * tolerance::kFloatUnit + errors.key) * condition + errors.tiny * q_sum;
  }
  return row;
}

// One head of one column. With exact weights w_j: |error| <= sum w_j (|v_j| + |out|) e_j, and V's
// rounding; then the output's two roundings.
inline void add_reference_row(const tolerance::AttentionCudaErrors& errors, CardCache& cache,
                              const CardColumns& c, int64_t t, int h, AttentionReference& r) {
  const int kv_head = h / (c.heads.n_heads / c.heads.n_kv_heads);
  const float* q = c.qg.data() + (t * c.heads.n_heads + h) * 2 * kAttentionHeadDim;
  const int64_t n = c.first_position + t + 1;
  const ScoredRow row = score_row(errors, cache, q, kv_head, n);
  const double top = *std::max_element(row.score.begin(), row.score.end());
  std::vector<float> stored(kAttentionHeadDim);
  std::vector<double> out(kAttentionHeadDim), spread(kAttentionHeadDim),
      magnitude(kAttentionHeadDim);
  double total = 0;
  double total_error = 0;
  for (size_t j = 0; j < row.score.size(); ++j) {
    const double w = exp_f64(row.score[j] - top);
    const double e =
        w * (row.error[j] + errors.weight + 2 * tolerance::kFloatUnit * (top - row.score[j]) +
             tolerance::attention_cuda_weight_error(n)) +
        tolerance::kAttentionCudaFlushed;
    total += w;
    total_error += e;
    kv_read(cache.view(), true, kv_head, static_cast<int64_t>(j), stored.data());
    for (size_t d = 0; d < kAttentionHeadDim; ++d) {
      const double v = stored[d];
      out[d] += w * v;
      magnitude[d] += w * std::fabs(v);
      spread[d] += e * std::fabs(v);
    }
  }
  for (size_t d = 0; d < kAttentionHeadDim; ++d) {
    const double o = out[d] / total;
    double bound = tolerance::kSecondOrder *
                       (spread[d] + std::fabs(o) * total_error + magnitude[d] * errors.value) /
                       total +
                   errors.tiny + 0x1p-24;
    bound = tolerance::with_output_rounding(o, bound, Rounding::bf16);
    double factor = 1;
    if (c.gated) {
      factor = 1 / (1 + exp_f64(-double{q[kAttentionHeadDim + d]}));
      bound = tolerance::with_output_rounding(
          o * factor, factor * bound * (1 + 16 * tolerance::kFloatUnit), Rounding::bf16);
    }
    r.value.push_back(o * factor);
    r.bound.push_back(bound);
  }
}

inline AttentionReference attention_reference(const AttentionRoute& route, CardCache& cache,
                                              const CardColumns& columns) {
  AttentionReference r;
  for (int64_t t = 0; t < columns.n_tokens; ++t) {
    for (int h = 0; h < columns.heads.n_heads; ++h) {
      add_reference_row(attention_errors(route), cache, columns, t, h, r);
    }
  }
  return r;
}

}  // namespace lockstep::op_test
