// Every route of linear on a card, against the float64 oracle and against itself.
#include "engine/ops/linear/cuda/linear_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/base/philox.h"
#include "engine/ops/common/cuda/family_test_util.h"
#include "engine/ops/linear/cuda/linear_cuda_test_util.h"
#include "engine/ops/linear/linear_test_matrix.h"

namespace lockstep {
namespace {

using namespace linear_test;

class LinearCuda : public testing::TestWithParam<LinearRoute> {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_FAMILY(GetParam().family); }
  Codec codec() const { return GetParam().codec; }
  KernelFamily family() const { return GetParam().family; }
};

INSTANTIATE_TEST_SUITE_P(Routes, LinearCuda,
                         testing::ValuesIn(linear_routes().begin(), linear_routes().end()),
                         [](const testing::TestParamInfo<LinearRoute>& test) {
                           return std::string(family_name(test.param.family)) + "_" +
                                  std::string(codec_name(test.param.codec));
                         });

// Edges of tiles (16 and 32 rows), of blocks (16 to 128 columns), of the eight warps' shares, of
// launches (8 columns).
TEST_P(LinearCuda, StaysWithinTheBoundAtEveryEdge) {
  for (const int64_t n_cols : {32, 64, 160, 1024, 1056, 3072}) {
    for (const int64_t n_rows : {1, 15, 16, 17, 31, 33, 130}) {
      if (n_cols > 1024 && n_rows != 33) continue;
      const TestMatrix matrix(codec(), n_rows, n_cols, 11, 32);
      const Loaded loaded(matrix.view(), family());
      for (const int64_t n_tokens : {1, 2, 3, 7, 8, 9, 17}) {
        if (n_tokens > 3 && n_rows != 33) continue;
        const std::vector<uint16_t> x = random_bf16(n_tokens, n_cols, 5);
        expect_within_bound(loaded, x, n_tokens, CudaOutput::fp32);
        expect_within_bound(loaded, x, n_tokens, CudaOutput::bf16);
        if (HasFailure()) return;
      }
      EXPECT_TRUE(loaded.weight.walls_intact());
    }
  }
}

// More tiles than a card has groups of warps, so that a warp goes from tile to tile.
TEST_P(LinearCuda, ManyTilesHaveTheBitsOfFewTiles) {
  const TestMatrix matrix(codec(), 9000, 1120, 12, 32);
  const Loaded all(matrix.view(), family());
  for (const int64_t n_tokens : {1, 8}) {
    const std::vector<uint16_t> x = random_bf16(n_tokens, 1120, 6);
    const std::vector<float> out = run(all, x, n_tokens);
    for (const int64_t first : {int64_t{0}, int64_t{4480}, int64_t{8960}}) {
      WeightMatrix part = matrix.view();
      part.n_rows = std::min<int64_t>(40, 9000 - first);
      part.codes += first * part.row_bytes;
      const int64_t scale_row = codec() == Codec::fp8_block ? first / 128 : first;
      const int64_t offset = scale_row * part.block_scale_stride;
      if (part.block_scales != nullptr) {
        const int64_t size = codec() == Codec::nvfp4 ? 1 : 4;
        part.block_scales = static_cast<const std::byte*>(part.block_scales) + offset * size;
      }
      if (part.zero_points != nullptr) part.zero_points += offset;
      if (part.row_scale != nullptr) part.row_scale += first;
      const Loaded few(part, family());
      const std::vector<float> some = run(few, x, n_tokens);
      for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t n = 0; n < part.n_rows; ++n) {
          ASSERT_EQ(some[static_cast<size_t>(t * part.n_rows + n)],
                    out[static_cast<size_t>(t * 9000 + first + n)])
              << "T " << n_tokens << " row " << first + n;
        }
      }
    }
  }
}

// I3, I4: a column's bits depend on that column alone: not on how many there are nor on its place.
TEST_P(LinearCuda, AColumnHasTheSameBitsAloneAndAmongOthers) {
  const TestMatrix matrix(codec(), 50, 1184, 13, 32);
  const Loaded loaded(matrix.view(), family());
  const std::vector<uint16_t> x = random_bf16(17, 1184, 7);
  const std::vector<float> out = run(loaded, x, 17);
  for (int64_t t = 0; t < 17; ++t) {
    const std::vector<uint16_t> one(x.begin() + t * 1184, x.begin() + (t + 1) * 1184);
    ASSERT_EQ(run(loaded, one, 1), rows_of(out, 50, t)) << "column " << t;
  }
  for (const int64_t n_tokens : {2, 3, 5, 8}) {
    const std::vector<uint16_t> some(x.begin() + 4 * 1184, x.begin() + (4 + n_tokens) * 1184);
    const std::vector<float> part = run(loaded, some, n_tokens);
    for (int64_t t = 0; t < n_tokens; ++t) {
      ASSERT_EQ(rows_of(part, 50, t), rows_of(out, 50, 4 + t)) << n_tokens << " columns";
    }
  }
}

TEST_P(LinearCuda, RunsGiveTheSameBits) {
  const TestMatrix matrix(codec(), 3000, 2080, 14, 32);
  const Loaded loaded(matrix.view(), family());
  const std::vector<uint16_t> x = random_bf16(8, 2080, 8);
  const std::vector<float> first = run(loaded, x, 8);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(run(loaded, x, 8), first);
}

// Small integers with power-of-two scales: every partial sum is an integer below 2^24, so any order
// gives the oracle's value exactly.
TEST_P(LinearCuda, IntegersAreExact) {
  TestMatrix matrix(codec(), 48, 1056, 15, 32);
  WeightMatrix view = matrix.view();
  std::vector<uint8_t> byte_scales;
  std::vector<float> scales;
  std::vector<float> row_scale(48, 0.5f);
  PhiloxStream random(16);
  const int64_t n_scales = 48 * view.block_scale_stride;
  for (int64_t i = 0; i < n_scales; ++i) {
    byte_scales.push_back(float_to_e4m3(std::ldexp(1.0f, static_cast<int>(random.next_below(3)))));
    scales.push_back(std::ldexp(1.0f, static_cast<int>(random.next_below(3))));
  }
  if (codec() == Codec::nvfp4) view.block_scales = byte_scales.data();
  if (codec() == Codec::fp8_block || codec() == Codec::int4) view.block_scales = scales.data();
  if (view.row_scale != nullptr) view.row_scale = row_scale.data();
  put_small_integers(matrix, random);
  std::vector<uint16_t> x(8 * 1056);
  for (uint16_t& value : x) value = float_to_bf16(static_cast<float>(random.next_below(7)) - 3.0f);
  const Loaded loaded(view, family());
  const std::vector<float> out = run(loaded, x, 8);
  const Oracle oracle(view, x, 8);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(double{out[i]}, oracle.value[i]) << "at " << i;
}

// Rows of very large and very small activations, zeros, and one column that is far from the rest.
TEST_P(LinearCuda, AnyRangeOfActivationsStaysWithinTheBound) {
  const TestMatrix matrix(codec(), 20, 256, 17, 32);
  const Loaded loaded(matrix.view(), family());
  std::vector<uint16_t> x = random_bf16(6, 256, 9);
  const float factors[6] = {1e30f, 1e-30f, 65536.0f, 0.0f, 3e-39f, 1.0f};
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = float_to_bf16(bf16_to_float(x[i]) * factors[i / 256]);
  }
  x[5 * 256 + 255] = float_to_bf16(1e6f);
  const std::vector<float> out = run(loaded, x, 6);
  const Oracle oracle(matrix.view(), x, 6);
  for (size_t i = 0; i < out.size(); ++i) {
    const double bound =
        tolerance::linear_cuda_bound(256, oracle.value[i], oracle.condition[i], Rounding::none);
    ASSERT_LE(std::fabs(out[i] - oracle.value[i]), bound) << "at " << i;
  }
}

// Rows of all magnitudes, the largest value in the last column of some. Aligned ones are prepared
// by a kernel of their own.
TEST_P(LinearCuda, AlignedRowsHaveTheBitsOfOthers) {
  for (const int64_t n_cols : {32, 160, 1056, 3072}) {
    const TestMatrix matrix(codec(), 40, n_cols, 19, 32);
    const Loaded loaded(matrix.view(), family());
    std::vector<uint16_t> x = random_bf16(17, n_cols, 14);
    for (int64_t t = 0; t < 17; ++t) {
      const auto row = x.begin() + t * n_cols;
      const float factor = std::ldexp(1.0f, static_cast<int>(t * 9 - 70));
      std::transform(row, row + n_cols, row,
                     [&](uint16_t bits) { return float_to_bf16(bf16_to_float(bits) * factor); });
      if (t % 3 == 1) row[n_cols - 1] = float_to_bf16(1e6f * factor);
      if (t == 5) std::fill(row, row + n_cols, uint16_t{0});
    }
    for (const LinearPass pass : {LinearPass::decode, LinearPass::prefill}) {
      for (const int64_t n_tokens : {1, 2, 3, 5, 8, 17}) {
        const auto padded = [&](int64_t x_padding) {
          return run(loaded, x, n_tokens, CudaOutput::fp32, pass, TileKernel::warps,
                     kTileShapeOfCard, x_padding);
        };
        ASSERT_EQ(padded(kXPaddingOfVectors), padded(kXPadding))
            << n_cols << " columns, T " << n_tokens;
      }
    }
  }
}

TEST_P(LinearCuda, ANanActivationStaysInItsColumn) {
  const TestMatrix matrix(codec(), 20, 256, 18, 32);
  const Loaded loaded(matrix.view(), family());
  std::vector<uint16_t> x = random_bf16(3, 256, 10);
  const std::vector<float> clean = run(loaded, x, 3);
  x[256 + 100] = 0x7fc0;
  const std::vector<float> out = run(loaded, x, 3);
  EXPECT_EQ(rows_of(out, 20, 0), rows_of(clean, 20, 0));
  EXPECT_EQ(rows_of(out, 20, 2), rows_of(clean, 20, 2));
  for (const float value : rows_of(out, 20, 1)) EXPECT_FALSE(std::isfinite(value));
}

}  // namespace
}  // namespace lockstep
