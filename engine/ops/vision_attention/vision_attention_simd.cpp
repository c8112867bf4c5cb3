#include <algorithm>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/common/aligned_floats.h"
#include "engine/ops/vision_attention/head_rows.h"
#include "engine/ops/vision_attention/vision_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/vision_attention/vision_attention_simd.cpp"
#include <hwy/foreach_target.h>

#include "engine/ops/common/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

constexpr int kKeysTogether = 4;

// scores[k] = scale * (q . K[k]); `scores` has room for a multiple of 16.
void score_keys(const HeadRows& rows, const float* q, int64_t n, float scale, float* scores) {
  const FloatTag d;
  for (int64_t k = 0; k < n; k += kKeysTogether) {
    const int64_t n_keys = std::min<int64_t>(kKeysTogether, n - k);
    Lanes16 sums[kKeysTogether];
    LOCKSTEP_UNROLL
    for (int j = 0; j < kKeysTogether; ++j) sums[j] = lanes_zero();
    for (int64_t i = 0; i < rows.width; i += 16) {
      const Lanes16 query = lanes_load(q + i);
      LOCKSTEP_UNROLL
      for (int j = 0; j < kKeysTogether; ++j) {
        // The last group repeats its last key rather than read beyond the end.
        const int64_t key = k + std::min<int64_t>(j, n_keys - 1);
        sums[j] = lanes_fma(query, lanes_load(rows.k + key * rows.width + i), sums[j]);
      }
    }
    HWY_ALIGN float dots[kVecLanes];
    hn::Store(hn::Mul(lanes_tree_sums<kKeysTogether>(sums), hn::Set(d, scale)), d, dots);
    for (int64_t j = 0; j < n_keys; ++j) scores[k + j] = dots[j];
  }
}

// scores becomes exp(scores - max); returns their sum.
float exponentiate(float* scores, int64_t n) {
  float largest = scores[0];
  for (int64_t k = 1; k < n; ++k) largest = scores[k] > largest ? scores[k] : largest;
  const int64_t padded = (n + 15) / 16 * 16;
  // exp of the padding is 0: it adds nothing to its lane.
  for (int64_t k = n; k < padded; ++k) scores[k] = largest - 1000.0f;
  Lanes16 sum = lanes_zero();
  const Lanes16 negative = lanes_set(-largest);
  for (int64_t k = 0; k < padded; k += 16) {
    const Lanes16 e = lanes_exp(lanes_add(lanes_load(scores + k), negative));
    lanes_store(e, scores + k);
    sum = lanes_add(sum, e);
  }
  return lanes_tree_sum(sum);
}

// out[0, 16 kCount) = sum_k weights[k] V[k, first...), keys ascending.
template <int kCount>
void add_values(const HeadRows& rows, const float* weights, int64_t n, int64_t first, float* out) {
  Lanes16 sums[kCount];
  LOCKSTEP_UNROLL
  for (int j = 0; j < kCount; ++j) sums[j] = lanes_zero();
  const float* v = rows.v + first;
  for (int64_t k = 0; k < n; ++k, v += rows.width) {
    const Lanes16 weight = lanes_set(weights[k]);
    LOCKSTEP_UNROLL
    for (int j = 0; j < kCount; ++j) sums[j] = lanes_fma(weight, lanes_load(v + 16 * j), sums[j]);
  }
  LOCKSTEP_UNROLL
  for (int j = 0; j < kCount; ++j) lanes_store(sums[j], out + 16 * j);
}

void add_all_values(const HeadRows& rows, const float* weights, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 64 <= rows.width; i += 64) add_values<4>(rows, weights, n, i, out + i);
  for (; i < rows.width; i += 16) add_values<1>(rows, weights, n, i, out + i);
}

void attend_queries(const VisionAttentionArgs& args, const HeadRows& rows, int head, int64_t begin,
                    int64_t end) {
  const int64_t padded = (args.n_tokens + 15) / 16 * 16;
  static thread_local AlignedFloats scratch;
  float* q = scratch.reserve(padded + 2 * rows.width);
  float* sums = q + rows.width;
  float* scores = sums + rows.width;
  const int64_t offset = int64_t{head} * args.head_dim;
  for (int64_t t = begin; t < end; ++t) {
    std::fill_n(q, rows.width, 0.0f);
    std::copy_n(args.q + t * args.token_stride + offset, args.head_dim, q);
    score_keys(rows, q, args.n_tokens, args.scale, scores);
    const float sum = exponentiate(scores, args.n_tokens);
    add_all_values(rows, scores, args.n_tokens, sums);
    const FloatTag d;
    const FloatVec divisor = hn::Set(d, sum);
    const bool round = args.rounding == Rounding::bf16;
    for (int64_t i = 0; i < rows.width; i += kVecLanes) {
      const FloatVec value = hn::Div(hn::LoadU(d, sums + i), divisor);
      hn::StoreU(round ? round_bf16_vec(value) : value, d, sums + i);
    }
    std::copy_n(sums, args.head_dim, args.out + t * args.n_heads * args.head_dim + offset);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(attend_queries);

void vision_attention(const VisionAttentionArgs& args, ThreadPool& pool) {
  LOCKSTEP_CHECK(args.head_dim > 0 && args.n_heads > 0);
  if (args.n_tokens == 0) return;
  constexpr int64_t kQueriesTogether = 8;
  const int64_t width = (args.head_dim + 15) / 16 * 16;
  const int64_t n_floats = args.n_tokens * width;
  std::vector<float> rows(static_cast<size_t>(2 * n_floats), 0.0f);
  const auto kernel = HWY_DYNAMIC_DISPATCH(attend_queries);
  for (int head = 0; head < args.n_heads; ++head) {
    const int64_t offset = int64_t{head} * args.head_dim;
    for (int64_t t = 0; t < args.n_tokens; ++t) {
      const int64_t from = t * args.token_stride + offset;
      std::copy_n(args.k + from, args.head_dim, rows.data() + t * width);
      std::copy_n(args.v + from, args.head_dim, rows.data() + n_floats + t * width);
    }
    const HeadRows head_rows{rows.data(), rows.data() + n_floats, width};
    pool.parallel_for(args.n_tokens, kQueriesTogether, [&](int64_t begin, int64_t end) {
      kernel(args, head_rows, head, begin, end);
    });
  }
}

}  // namespace lockstep
#endif  // HWY_ONCE
