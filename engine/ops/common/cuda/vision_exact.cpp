#include "engine/ops/common/cuda/vision_exact.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/ops/common/exact_values.h"
#include "engine/ops/layernorm/layernorm.h"

namespace lockstep {
namespace {

constexpr uint32_t kLargestMean = 60;
constexpr uint32_t kLargestValue = 100;
constexpr float kQueryValue = 64.0f;
constexpr float kUnseen = -240.0f;  // a key's value where a query must not see it
constexpr int kCounts = 8;          // numbers of keys that a query sees: 1, 2, 4, ... 128

std::vector<float> layernorm_host(uint64_t seed, int64_t width) {
  const LayerNormExactProblem p(seed, width);
  std::vector<float> out(p.x.size());
  ThreadPool pool(1);
  layernorm({p.x.data(), p.weight.data(), p.bias.data(), out.data(), p.n_rows, width, kSquaresEps,
             Rounding::bf16},
            pool);
  return out;
}

std::vector<float> attention_host(uint64_t seed) {
  const VisionAttentionExactProblem p(seed);
  const int64_t row = int64_t{p.n_heads} * p.head_dim;
  std::vector<float> out;
  for (int64_t t = 0; t < p.n_tokens; ++t) {
    for (int64_t at = 0; at < row; at += p.head_dim) {
      const int64_t place = at + t % p.head_dim;  // of the query's one value
      for (int64_t c = at; c < at + p.head_dim; ++c) {
        int sum = 0;
        int n_seen = 0;
        for (int64_t key = 0; key < p.n_tokens; ++key) {
          if (p.k[static_cast<size_t>(key * row + place)] != 0.0f) continue;
          sum += static_cast<int>(p.v[static_cast<size_t>(key * row + c)]);
          ++n_seen;
        }
        out.push_back(round_to_bf16(static_cast<float>(sum) / static_cast<float>(n_seen)));
      }
    }
  }
  return with_plain_zeros(out);
}

std::vector<float> weighted_host(uint64_t seed) {
  const WeightedExactProblem p(seed);
  const auto n_tokens = static_cast<int64_t>(p.sources.size());
  std::vector<float> out(static_cast<size_t>(n_tokens * p.width));
  ThreadPool pool(1);
  weighted_embedding(
      {p.table.data(), p.n_rows, p.width, p.sources.data(), out.data(), n_tokens, Rounding::bf16},
      pool);
  return out;
}

}  // namespace

LayerNormExactProblem::LayerNormExactProblem(uint64_t seed, int64_t w) : width(w) {
  PhiloxStream random(seed, 8);
  for (int64_t row = 0; row < n_rows; ++row) {
    const float mean = exact_integer(random, kLargestMean);
    for (const float value : exact_squares(random, width)) x.push_back(mean + value);
  }
  weight = exact_floats(random, width, 1.0f, false);
  bias = exact_floats(random, width, 1.0f, false);
}

VisionAttentionExactProblem::VisionAttentionExactProblem(uint64_t seed) {
  PhiloxStream random(seed, 9);
  const int64_t row = int64_t{n_heads} * head_dim;
  q.resize(static_cast<size_t>(n_tokens * row));
  k.resize(q.size(), kUnseen);
  for (size_t i = 0; i < q.size(); ++i) v.push_back(exact_integer(random, kLargestValue));
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t at = t % head_dim; at < row; at += head_dim) {
      q[static_cast<size_t>(t * row + at)] = kQueryValue;
    }
  }
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < n_tokens; ++key) keys.push_back(key);
  for (int64_t at = 0; at < row; ++at) {
    const int64_t n_seen = int64_t{1} << (at % kCounts);
    for (int64_t i = 0; i < n_seen; ++i) {
      const auto other = i + random.next_below(static_cast<uint32_t>(n_tokens - i));
      std::swap(keys[static_cast<size_t>(i)], keys[static_cast<size_t>(other)]);
      k[static_cast<size_t>(keys[static_cast<size_t>(i)] * row + at)] = 0.0f;
    }
  }
}

WeightedExactProblem::WeightedExactProblem(uint64_t seed) {
  PhiloxStream random(seed, 10);
  table = exact_floats(random, n_rows * width, 2.0f, false);
  sources.resize(40);
  for (WeightedRows& source : sources) {
    for (int32_t& row : source.rows) {
      row = static_cast<int32_t>(random.next_below(static_cast<uint32_t>(n_rows)));
    }
    for (float& weight : source.weights) weight = random.next_uniform();
  }
}

std::vector<ExactCase> vision_exact_cases(VisionExact op) {
  std::vector<ExactCase> cases;
  switch (op) {
    case VisionExact::layernorm:
      for (const int64_t width : kLayerNormExactWidths) {
        cases.push_back({fmt::format("deviations of 2, 4 and 8, width {}", width), 70,
                         [=](uint64_t seed) { return layernorm_host(seed, width); }});
      }
      return cases;
    case VisionExact::vision_attention:
      return {{"sm70: means of 1 to 128 values", 70, attention_host},
              {"sm80: means of 1 to 128 values", 80, attention_host}};
    case VisionExact::weighted_embedding:
      break;
  }
  return {{"the CPU's bits", 70, weighted_host}};
}

}  // namespace lockstep
