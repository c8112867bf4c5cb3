// Attention of patches on a card, against float64 and against itself.
#include "engine/ops/vision_attention/cuda/vision_attention_cuda.h"

#include "engine/base/math.h"
#include "engine/ops/common/cuda/family_test_util.h"
#include "engine/ops/common/cuda/row_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr int kHeads = 2;

// q, k, v of one fused projection: [n, 3, heads, head_dim].
struct Patches {
  Patches(int64_t n_tokens, int dim, float scale_of_q)
      : n(n_tokens),
        head_dim(dim),
        stride(int64_t{3} * kHeads * dim),
        qkv(random_floats(1, n_tokens * stride, 2.0f, Rounding::bf16)) {
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t i = 0; i < kHeads * dim; ++i)
        qkv[static_cast<size_t>(t * stride + i)] *= scale_of_q;
    }
    qkv = floats_of_bf16(bf16_of_floats(qkv));
  }
  const float* part(int64_t token, int which, int head) const {
    return qkv.data() + token * stride + (int64_t{which} * kHeads + head) * head_dim;
  }
  int64_t n;
  int head_dim;
  int64_t stride;
  std::vector<float> qkv;
};

std::vector<uint16_t> run(const Patches& p, float scale, KernelFamily family) {
  const GuardedBytes qkv(bf16_of_floats(p.qkv));
  const int64_t width = int64_t{kHeads} * p.head_dim;
  const GuardedBytes out(p.n * width * 2);
  const auto* q = qkv.as<uint16_t>();
  vision_attention_cuda({q, q + width, q + 2 * width, p.stride, out.as<uint16_t>(), p.n, kHeads,
                         p.head_dim, scale, family},
                        card_stream());
  EXPECT_TRUE(out.walls_intact());
  return out.values<uint16_t>();
}

struct Bound {
  double value;
  double error;
};

std::vector<Bound> row_bounds(const Patches& p, int64_t token, int head, float scale,
                              KernelFamily family) {
  const bool sm70 = family == KernelFamily::sm70;
  std::vector<double> weights;
  double score_error = 0;
  double largest = -INFINITY;
  double smallest = INFINITY;
  for (int64_t k = 0; k < p.n; ++k) {
    double score = 0;
    double condition = 0;
    for (int d = 0; d < p.head_dim; ++d) {
      const double product = double{p.part(token, 0, head)[d]} * double{p.part(k, 1, head)[d]};
      score += product;
      condition += std::fabs(product);
    }
    weights.push_back(score * double{scale});
    condition *= double{scale};
    score_error = std::fmax(
        score_error, sm70 ? tolerance::vision_attention_sm70_score_error(p.head_dim, condition)
                          : tolerance::vision_attention_sm80_score_error(p.head_dim, condition));
    largest = std::fmax(largest, weights.back());
    smallest = std::fmin(smallest, weights.back());
  }
  double total = 0;
  for (double& w : weights) total += w = exp_f64(w - largest);
  std::vector<Bound> bounds;
  for (int d = 0; d < p.head_dim; ++d) {
    double sum = 0;
    double magnitude = 0;
    for (int64_t k = 0; k < p.n; ++k) {
      const double product =
          weights[static_cast<size_t>(k)] / total * double{p.part(k, 2, head)[d]};
      sum += product;
      magnitude += std::fabs(product);
    }
    const auto error =
        sm70 ? tolerance::vision_attention_sm70_error : tolerance::vision_attention_sm80_error;
    bounds.push_back({sum, error(p.n, score_error, largest - smallest, magnitude, std::fabs(sum))});
  }
  return bounds;
}

class VisionAttentionCuda : public testing::TestWithParam<KernelFamily> {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_FAMILY(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Families, VisionAttentionCuda,
                         testing::Values(KernelFamily::sm70, KernelFamily::sm80),
                         [](const testing::TestParamInfo<KernelFamily>& test) {
                           return std::string(family_name(test.param));
                         });

TEST_P(VisionAttentionCuda, StaysWithinTheBoundAtEveryBorder) {
  for (const int head_dim : {64, 72}) {
    for (const int64_t n : {1, 31, 32, 33, 63, 64, 65, 127, 129, 300}) {
      const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
      const Patches patches(n, head_dim, n == 65 ? 8.0f : 1.0f);
      const std::vector<uint16_t> out = run(patches, scale, GetParam());
      for (int64_t t = 0; t < n; ++t) {
        for (int head = 0; head < kHeads; ++head) {
          const std::vector<Bound> bounds = row_bounds(patches, t, head, scale, GetParam());
          for (int d = 0; d < head_dim; ++d) {
            const auto [value, error] = bounds[static_cast<size_t>(d)];
            const float got =
                bf16_to_float(out[static_cast<size_t>((t * kHeads + head) * head_dim + d)]);
            ASSERT_LE(std::fabs(got - value),
                      tolerance::with_output_rounding(value, error, Rounding::bf16))
                << n << " patches, row " << t << ", value " << d;
          }
        }
      }
    }
  }
}

// Queries of zeros weigh all keys alike: means of small integers over powers of two are exact.
TEST_P(VisionAttentionCuda, MeansOfIntegersAreExact) {
  for (const int64_t n : {1, 2, 32, 64, 128}) {
    Patches patches(n, 72, 0.0f);
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t i = 0; i < kHeads * 72; ++i) {
        patches.qkv[static_cast<size_t>(t * patches.stride + 2 * kHeads * 72 + i)] =
            static_cast<float>((t * 5 + i) % 7 - 3);
      }
    }
    const std::vector<uint16_t> out = run(patches, 0.125f, GetParam());
    for (int64_t i = 0; i < n * kHeads * 72; ++i) {
      double sum = 0;
      for (int64_t t = 0; t < n; ++t) sum += patches.part(t, 2, 0)[i % (kHeads * 72)];
      ASSERT_EQ(bf16_to_float(out[static_cast<size_t>(i)]),
                round_to_bf16(static_cast<float>(sum / static_cast<double>(n))));
    }
  }
}

// The same queries in another order, against the same keys and values.
TEST_P(VisionAttentionCuda, ARowsBitsDoNotDependOnItsPlace) {
  constexpr int64_t kWidth = kHeads * 72;
  const Patches patches(150, 72, 1.0f);
  const std::vector<uint16_t> straight = run(patches, 0.125f, GetParam());
  EXPECT_EQ(run(patches, 0.125f, GetParam()), straight);
  Patches turned = patches;
  for (int64_t t = 0; t < patches.n; ++t) {
    std::copy_n(patches.qkv.begin() + t * patches.stride, kWidth,
                turned.qkv.begin() + (patches.n - 1 - t) * patches.stride);
  }
  const std::vector<uint16_t> out = run(turned, 0.125f, GetParam());
  for (int64_t t = 0; t < patches.n; ++t) {
    const auto row = out.begin() + (patches.n - 1 - t) * kWidth;
    EXPECT_EQ(
        std::vector<uint16_t>(row, row + kWidth),
        std::vector<uint16_t>(straight.begin() + t * kWidth, straight.begin() + (t + 1) * kWidth))
        << "row " << t;
  }
}

}  // namespace
}  // namespace lockstep
