// Gated normalisation on a card.
#include "engine/ops/gated_rmsnorm/cuda/gated_rmsnorm_cuda.h"

#include <gtest/gtest.h>

#include "engine/ops/common/cuda/device_test_util.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/gated_rmsnorm/gated_rmsnorm.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr float kEps = 1e-6f;

struct Problem {
  Problem(int64_t n, int heads, float scale)
      : n_tokens(n),
        n_heads(heads),
        x(random_floats(81, n * heads * kGatedNormWidth, scale, Rounding::bf16)),
        z(random_floats(82, n * heads * kGatedNormWidth, 8.0f, Rounding::bf16)),
        weight(random_floats(83, kGatedNormWidth, 2.0f)) {}
  int64_t n_tokens;
  int n_heads;
  std::vector<float> x, z, weight;
  int64_t width() const { return int64_t{n_heads} * kGatedNormWidth; }
};

// Rows with padding between them, poisoned.
GuardedBytes padded(const std::vector<float>& dense, int64_t width, int64_t stride) {
  const auto n = static_cast<int64_t>(dense.size()) / width;
  std::vector<uint16_t> bits(static_cast<size_t>(n * stride), 0xffff);
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t i = 0; i < width; ++i) {
      bits[static_cast<size_t>(t * stride + i)] =
          float_to_bf16(dense[static_cast<size_t>(t * width + i)]);
    }
  }
  return GuardedBytes(bits);
}

std::vector<float> run(const Problem& p, bool in_place = false) {
  const int64_t x_stride = p.width() + 8, z_stride = p.width() + 40, out_stride = p.width() + 16;
  const GuardedBytes x = padded(p.x, p.width(), x_stride), z = padded(p.z, p.width(), z_stride);
  const GuardedBytes weight(p.weight);
  const GuardedBytes out(p.n_tokens * out_stride * 2);
  GatedRmsNormCudaArgs args;
  args.x = x.as<uint16_t>();
  args.x_stride = x_stride;
  args.z = z.as<uint16_t>();
  args.z_stride = z_stride;
  args.weight = weight.as<float>();
  args.out = in_place ? x.as<uint16_t>() : out.as<uint16_t>();
  args.out_stride = in_place ? x_stride : out_stride;
  args.n_tokens = p.n_tokens;
  args.n_heads = p.n_heads;
  args.eps = kEps;
  gated_rmsnorm_cuda(args, *Card::instance().stream);
  Card::instance().stream->synchronize();
  EXPECT_TRUE(x.walls_intact() && out.walls_intact());
  const std::vector<uint16_t> bits = (in_place ? x : out).values<uint16_t>();
  std::vector<float> dense;
  for (int64_t t = 0; t < p.n_tokens; ++t) {
    for (int64_t i = 0; i < args.out_stride; ++i) {
      const uint16_t b = bits[static_cast<size_t>(t * args.out_stride + i)];
      if (i < p.width()) {
        dense.push_back(bf16_to_float(b));
      } else {
        EXPECT_EQ(b, 0xffff) << "wrote beyond row " << t;
      }
    }
  }
  return dense;
}

class GatedRmsNormCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

TEST_F(GatedRmsNormCuda, StaysWithinTheBound) {
  for (const float scale : {1e-4f, 1.0f, 3e4f}) {
    for (const auto& [n_tokens, n_heads] : std::vector<std::pair<int64_t, int>>{
             {1, 1}, {1, 3}, {3, 3}, {8, 1}, {9, 1}, {17, 24}, {5, 48}}) {
      const Problem p(n_tokens, n_heads, scale);
      std::vector<double> value(p.x.size()), bound;
      gated_rmsnorm_oracle({p.x.data(), p.z.data(), p.weight.data(), nullptr, n_tokens * n_heads,
                            kGatedNormWidth, kEps, Rounding::none},
                           value.data());
      for (const double v : value) {
        const double error = std::fabs(v) * tolerance::gated_rmsnorm_relative(kGatedNormWidth);
        bound.push_back(tolerance::with_output_rounding(v, error, Rounding::bf16));
      }
      ASSERT_LE(worst_ratio(run(p), value, bound), 1.0) << scale << " " << n_tokens;
    }
  }
}

TEST_F(GatedRmsNormCuda, AHeadHasTheSameBitsAnywhere) {
  const Problem p(7, 5, 1.0f);
  const std::vector<float> all = run(p);
  EXPECT_EQ(run(p), all);
  EXPECT_EQ(run(p, true), all);
  Problem other = p;
  other.n_tokens = 35;
  other.n_heads = 1;
  EXPECT_EQ(run(other), all);
  other.n_tokens = 3;
  other.x.assign(p.x.begin() + 11 * kGatedNormWidth, p.x.begin() + 14 * kGatedNormWidth);
  other.z.assign(p.z.begin() + 11 * kGatedNormWidth, p.z.begin() + 14 * kGatedNormWidth);
  const std::vector<float> some = run(other);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 11 * kGatedNormWidth));
}

}  // namespace
}  // namespace lockstep
