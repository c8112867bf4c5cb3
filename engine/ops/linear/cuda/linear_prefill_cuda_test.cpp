// The prompt's routes of linear on a card: against the float64 oracle, and a column's bits whatever
// stands beside it.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/ops/common/cuda/family_test_util.h"
#include "engine/ops/linear/cuda/linear_cuda_test_util.h"
#include "engine/ops/linear/cuda/tile_shape.h"
#include "engine/ops/linear/linear_test_matrix.h"

namespace lockstep {
namespace {

using namespace linear_test;

struct PrefillRoute {
  LinearRoute route;
  TileKernel tiles;
};

// Warp groups are a second kernel for some codecs on some cards; elsewhere `of_card` is the first.
std::vector<PrefillRoute> prefill_routes() {
  std::vector<PrefillRoute> routes;
  for (const LinearRoute& route : linear_routes()) {
    routes.push_back({route, TileKernel::warps});
    if (route.family == KernelFamily::sm80) routes.push_back({route, TileKernel::of_card});
  }
  return routes;
}

class LinearPrefillCuda : public testing::TestWithParam<PrefillRoute> {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_FAMILY(GetParam().route.family); }
  Codec codec() const { return GetParam().route.codec; }
  KernelFamily family() const { return GetParam().route.family; }
  TileKernel tiles() const { return GetParam().tiles; }
  std::vector<float> prefill(const Loaded& loaded, const std::vector<uint16_t>& x,
                             int64_t n_tokens) const {
    return run(loaded, x, n_tokens, CudaOutput::fp32, LinearPass::prefill, tiles());
  }
};

INSTANTIATE_TEST_SUITE_P(Routes, LinearPrefillCuda, testing::ValuesIn(prefill_routes()),
                         [](const testing::TestParamInfo<PrefillRoute>& test) {
                           return std::string(family_name(test.param.route.family)) + "_" +
                                  std::string(codec_name(test.param.route.codec)) +
                                  (test.param.tiles == TileKernel::warps ? "" : "_of_card");
                         });

// Edges of tiles (rows of 16, 32 and 128; columns of 8, 32, 64 and 128) and of blocks of K.
TEST_P(LinearPrefillCuda, StaysWithinTheBoundAtEveryEdge) {
  for (const int64_t n_cols : {32, 160, 1056}) {
    for (const int64_t n_rows : {1, 17, 33, 127, 129}) {
      if (n_cols != 160 && n_rows != 129) continue;
      const TestMatrix matrix(codec(), n_rows, n_cols, 21, 32);
      const Loaded loaded(matrix.view(), family());
      for (const int64_t n_tokens : {1, 7, 9, 31, 33, 64, 65, 127, 128, 129, 257}) {
        if (n_tokens > 9 && n_rows != 129) continue;
        if (n_tokens > 129 && n_cols != 160) continue;
        const std::vector<uint16_t> x = random_bf16(n_tokens, n_cols, 5);
        const CudaOutput output = n_tokens % 2 == 0 ? CudaOutput::bf16 : CudaOutput::fp32;
        expect_within_bound(loaded, x, n_tokens, output, LinearPass::prefill, tiles());
        if (HasFailure()) return;
      }
      EXPECT_TRUE(loaded.weight.walls_intact());
    }
  }
}

// Groups of 64 and 128 columns and longer ones: other kernels, other scales.
TEST_P(LinearPrefillCuda, EveryWidthOfGroupStaysWithinTheBound) {
  if (codec() != Codec::int4) GTEST_SKIP() << "has no groups";
  for (const int64_t group : {64, 128, 256}) {
    const TestMatrix matrix(codec(), 40, 512, 22, group);
    const Loaded loaded(matrix.view(), family());
    for (const LinearPass pass : {LinearPass::decode, LinearPass::prefill}) {
      expect_within_bound(loaded, random_bf16(20, 512, 6), 20, CudaOutput::fp32, pass, tiles());
    }
  }
}

// I3: a column's bits depend on that column alone: not on the number of columns, on its place in
// the call, or on its neighbours.
TEST_P(LinearPrefillCuda, AColumnHasTheSameBitsAloneAndAmongOthers) {
  const TestMatrix matrix(codec(), 50, 1184, 23, 32);
  const Loaded loaded(matrix.view(), family());
  const std::vector<uint16_t> x = random_bf16(150, 1184, 7);
  const std::vector<float> out = prefill(loaded, x, 150);
  for (const int64_t n_tokens : {1, 5, 8, 9, 32, 33, 64, 65, 100, 129}) {
    for (const int64_t first : {int64_t{0}, int64_t{3}, 150 - n_tokens}) {
      const std::vector<uint16_t> some(x.begin() + first * 1184,
                                       x.begin() + (first + n_tokens) * 1184);
      const std::vector<float> part = prefill(loaded, some, n_tokens);
      for (int64_t t = 0; t < n_tokens; ++t) {
        ASSERT_EQ(rows_of(part, 50, t), rows_of(out, 50, first + t))
            << n_tokens << " columns from " << first << ", column " << t;
      }
    }
  }
}

// I3: a rank that has part of the rows gets the bits of the whole matrix.
TEST_P(LinearPrefillCuda, PartOfTheRowsHasTheBitsOfAll) {
  const TestMatrix matrix(codec(), 400, 288, 24, 32);
  const Loaded all(matrix.view(), family());
  const std::vector<uint16_t> x = random_bf16(40, 288, 8);
  const std::vector<float> out = prefill(all, x, 40);
  WeightMatrix half = matrix.view();
  half.n_rows = 256;
  const Loaded few(half, family());
  const std::vector<float> part = prefill(few, x, 40);
  for (int64_t t = 0; t < 40; ++t) {
    const std::vector<float> row = rows_of(out, 400, t);
    ASSERT_EQ(rows_of(part, 256, t), std::vector<float>(row.begin(), row.begin() + 256));
  }
}

// I3: which tile fits the card best depends on its multiprocessors; the bits do not.
TEST_P(LinearPrefillCuda, EveryShapeOfTileHasTheSameBits) {
  if (tiles() == TileKernel::warps) GTEST_SKIP() << "has one shape a number of columns";
  for (const int64_t n_cols : {32, 1184}) {
    const TestMatrix matrix(codec(), 300, n_cols, 29, 32);
    const Loaded loaded(matrix.view(), family());
    const std::vector<uint16_t> x = random_bf16(150, n_cols, 11);
    const std::vector<float> out = prefill(loaded, x, 150);
    for (int shape = 0; shape < static_cast<int>(kTileShapes.size()); ++shape) {
      ASSERT_EQ(run(loaded, x, 150, CudaOutput::fp32, LinearPass::prefill, tiles(), shape), out)
          << "shape " << shape;
    }
  }
}

TEST_P(LinearPrefillCuda, EveryWidthOfGroupHasTheSameBitsInEveryShape) {
  if (codec() != Codec::int4 || tiles() == TileKernel::warps) GTEST_SKIP() << "has no groups";
  for (const int64_t group : {64, 128, 256}) {
    const TestMatrix matrix(codec(), 140, 768, 30, group);
    const Loaded loaded(matrix.view(), family());
    const std::vector<uint16_t> x = random_bf16(130, 768, 12);
    const std::vector<float> out = prefill(loaded, x, 130);
    for (int shape = 0; shape < static_cast<int>(kTileShapes.size()); ++shape) {
      ASSERT_EQ(run(loaded, x, 130, CudaOutput::fp32, LinearPass::prefill, tiles(), shape), out)
          << "groups of " << group << ", shape " << shape;
    }
  }
}

TEST_P(LinearPrefillCuda, RunsGiveTheSameBits) {
  const TestMatrix matrix(codec(), 700, 2080, 25, 32);
  const Loaded loaded(matrix.view(), family());
  const std::vector<uint16_t> x = random_bf16(100, 2080, 9);
  const std::vector<float> first = prefill(loaded, x, 100);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(prefill(loaded, x, 100), first);
}

// The decode kernels are the cross-check: integers are exact on both routes.
TEST_P(LinearPrefillCuda, IntegersHaveTheBitsOfDecode) {
  TestMatrix matrix(codec(), 130, 544, 26, 32);
  WeightMatrix view = matrix.view();
  const auto n_scales = static_cast<size_t>(130 * view.block_scale_stride);
  const std::vector<uint8_t> byte_scales(n_scales, float_to_e4m3(2.0f));
  const std::vector<float> scales(n_scales, 0.5f);
  const std::vector<float> row_scale(130, 2.0f);
  if (codec() == Codec::nvfp4) view.block_scales = byte_scales.data();
  if (codec() == Codec::fp8_block || codec() == Codec::int4) view.block_scales = scales.data();
  if (view.row_scale != nullptr) view.row_scale = row_scale.data();
  PhiloxStream random(27);
  put_small_integers(matrix, random);
  std::vector<uint16_t> x(70 * 544);
  for (uint16_t& value : x) value = float_to_bf16(static_cast<float>(random.next_below(7)) - 3.0f);
  const Loaded loaded(view, family());
  ASSERT_EQ(prefill(loaded, x, 70), run(loaded, x, 70));
}

TEST_P(LinearPrefillCuda, ANanActivationStaysInItsColumn) {
  const TestMatrix matrix(codec(), 20, 256, 28, 32);
  const Loaded loaded(matrix.view(), family());
  std::vector<uint16_t> x = random_bf16(20, 256, 10);
  const std::vector<float> clean = prefill(loaded, x, 20);
  x[7 * 256 + 100] = 0x7fc0;
  const std::vector<float> out = prefill(loaded, x, 20);
  for (int64_t t = 0; t < 20; ++t) {
    if (t == 7) continue;
    ASSERT_EQ(rows_of(out, 20, t), rows_of(clean, 20, t));
  }
  for (const float value : rows_of(out, 20, 7)) EXPECT_FALSE(std::isfinite(value));
}

}  // namespace
}  // namespace lockstep
