// Norms on a card: heads with the CPU's bits, rows against float64 and against themselves.
#include "engine/ops/rmsnorm/cuda/rmsnorm_cuda.h"

#include "engine/base/error.h"
#include "engine/ops/common/cuda/row_routes.h"
#include "engine/ops/common/cuda/row_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/residual_add/cuda/residual_add_cuda.h"
#include "engine/ops/residual_add/residual_add.h"
#include "engine/ops/rmsnorm/rmsnorm.h"

namespace lockstep {
namespace {

using namespace op_test;

constexpr int kGap = 8;
constexpr float kEps = 1e-6f;

struct Rows {
  Rows(int64_t n, int w, uint64_t seed, float scale = 3.0f)
      : n_rows(n),
        width(w),
        x(random_floats(seed, n * w, scale, Rounding::bf16)),
        y0(random_floats(seed + 1, n * w, scale, Rounding::bf16)),
        y1(random_floats(seed + 2, n * w, scale, Rounding::bf16)),
        weight(random_floats(7, w, 0.5f)) {}

  int64_t n_rows;
  int width;
  std::vector<float> x;
  std::vector<float> y0;
  std::vector<float> y1;
  std::vector<float> weight;
};

struct Normed {
  std::vector<uint16_t> x;
  std::vector<uint16_t> out;
};

// n_branches: how many of y0 and y1 are added first.
Normed run(const Rows& rows, int n_branches, float eps = kEps) {
  const int64_t stride = rows.width + kGap;
  const GuardedBytes x(padded_rows(bf16_of_floats(rows.x), rows.n_rows, rows.width, stride));
  const GuardedBytes y0(bf16_of_floats(rows.y0));
  const GuardedBytes y1(bf16_of_floats(rows.y1));
  const GuardedBytes weight(rows.weight);
  const GuardedBytes out(rows.n_rows * stride * 2);
  RmsNormCudaArgs args;
  args.x = x.as<uint16_t>();
  args.x_stride = args.out_stride = stride;
  args.y0 = n_branches > 0 ? y0.as<uint16_t>() : nullptr;
  args.y1 = n_branches > 1 ? y1.as<uint16_t>() : nullptr;
  args.weight = weight.as<float>();
  args.out = out.as<uint16_t>();
  args.n_rows = rows.n_rows;
  args.width = rows.width;
  args.eps = eps;
  args.weight_offset = 1.0f;
  rmsnorm_cuda(args, card_stream());
  EXPECT_TRUE(x.walls_intact() && out.walls_intact());
  return {dense_rows(x.values<uint16_t>(), rows.n_rows, rows.width, stride),
          dense_rows(out.values<uint16_t>(), rows.n_rows, rows.width, stride)};
}

RmsNormArgs cpu_args(const Rows& rows, float* out, float eps = kEps) {
  return {rows.x.data(), rows.width, rows.weight.data(), out, rows.width, rows.n_rows, rows.width,
          eps,           1.0f,       Rounding::bf16};
}

class RmsNormCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

TEST(RowRoutes, WhatIsNotRegisteredIsAnError) {
  for (const RowRoute& route : row_routes()) {
    EXPECT_EQ(&row_route(route.op), &route);
    EXPECT_TRUE(has_row_route(route.op, route.smallest));
    EXPECT_TRUE(has_row_route(route.op, route.largest));
    EXPECT_THROW(require_row_route(route.op, route.smallest - 1), Error);
    EXPECT_THROW(require_row_route(route.op, route.largest + route.multiple_of), Error);
  }
  EXPECT_FALSE(has_row_route(RowOp::rmsnorm, 5121));
  EXPECT_FALSE(has_row_route(RowOp::head, 192));
  EXPECT_NO_THROW(require_kv_route(KvType::int8, 256));
  EXPECT_THROW(require_kv_route(KvType::fp32, 256), Error);
  EXPECT_THROW(require_kv_route(KvType::int8, 96), Error);
}

TEST_F(RmsNormCuda, HeadsHaveTheBitsOfTheCpu) {
  ThreadPool pool(1);
  for (const int width : {64, 128, 256}) {
    for (const int64_t n_rows : {1, 2, 7, 8, 9, 33}) {
      const Rows rows(n_rows, width, 11);
      std::vector<float> want(rows.x.size());
      rmsnorm(cpu_args(rows, want.data()), pool);
      expect_same_bf16(run(rows, 0).out, want, "width " + std::to_string(width));
    }
  }
}

TEST_F(RmsNormCuda, RowsStayWithinTheBoundAtEveryBorder) {
  for (const int width : {72, 248, 264, 504, 512, 520, 4088, 4096, 4104, 5120, 8200, 16384}) {
    const Rows rows(3, width, 21, width == 520 ? 1e-4f : 3.0f);
    const std::vector<uint16_t> out = run(rows, 0).out;
    std::vector<double> value(rows.x.size());
    rmsnorm_oracle(cpu_args(rows, nullptr), value.data());
    for (size_t i = 0; i < value.size(); ++i) {
      const double bound = tolerance::with_output_rounding(
          value[i], std::fabs(value[i]) * tolerance::kRmsNormCudaRelative, Rounding::bf16);
      ASSERT_LE(std::fabs(bf16_to_float(out[i]) - value[i]), bound) << width << " at " << i;
    }
  }
}

// Before the last rounding the bound is tight only if values that bfloat16 can hold come out:
// equal magnitudes and weights of 0 give exactly one, whatever the order.
TEST_F(RmsNormCuda, EqualMagnitudesGiveExactlyOne) {
  for (const int width : {256, 5120}) {
    Rows rows(2, width, 31);
    std::fill(rows.weight.begin(), rows.weight.end(), 0.0f);
    for (float& x : rows.x) x = x < 0 ? -2.0f : 2.0f;
    const std::vector<uint16_t> out = run(rows, 0, 0.0f).out;
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(bf16_to_float(out[i]), rows.x[i] / 2) << i;
    }
  }
}

TEST_F(RmsNormCuda, WithBranchesItIsTheSeparateOps) {
  for (const int width : {64, 256, 512, 5120, 8200}) {
    for (const int n_branches : {1, 2}) {
      Rows rows(5, width, 41);
      const Normed fused = run(rows, n_branches);
      std::vector<float> branch = rows.y0;
      const auto n = static_cast<int64_t>(branch.size());
      if (n_branches == 2) {
        sum_partials(rows.y0.data(), rows.y1.data(), branch.data(), n, Rounding::bf16);
      }
      residual_add(rows.x.data(), branch.data(), n, Rounding::bf16);
      expect_same_bf16(fused.x, rows.x, "residual");
      EXPECT_EQ(fused.out, run(rows, 0).out) << "width " << width << ", " << n_branches;
    }
  }
}

TEST_F(RmsNormCuda, ARowsBitsDependOnThatRowAlone) {
  for (const int width : {256, 5120}) {
    const Rows rows(40, width, 51);
    const Normed all = run(rows, 2);
    EXPECT_EQ(run(rows, 2).out, all.out);
    for (const int64_t row : {0, 17, 39}) {
      Rows one(1, width, 61);
      const auto part = [&](const std::vector<float>& from) {
        return std::vector<float>(from.begin() + row * width, from.begin() + (row + 1) * width);
      };
      one.x = part(rows.x);
      one.y0 = part(rows.y0);
      one.y1 = part(rows.y1);
      const std::vector<uint16_t> want(all.out.begin() + row * width,
                                       all.out.begin() + (row + 1) * width);
      EXPECT_EQ(run(one, 2).out, want) << "row " << row;
    }
  }
}

TEST_F(RmsNormCuda, SumsHaveTheBitsOfTheCpu) {
  for (const int64_t n : {1, 7, 8, 9, 2047, 2048, 2056, 5123}) {
    const std::vector<float> a = random_floats(1, n, 5.0f, Rounding::bf16);
    const std::vector<float> b = random_floats(2, n, 5.0f, Rounding::bf16);
    std::vector<float> want(a.size());
    sum_partials(a.data(), b.data(), want.data(), n, Rounding::bf16);
    const GuardedBytes x(bf16_of_floats(a));
    const GuardedBytes y(bf16_of_floats(b));
    const GuardedBytes out(n * 2);
    sum_partials_cuda(x.as<uint16_t>(), y.as<uint16_t>(), out.as<uint16_t>(), n, card_stream());
    residual_add_cuda(x.as<uint16_t>(), y.as<uint16_t>(), n, card_stream());
    expect_same_bf16(out.values<uint16_t>(), want, "sum_partials");
    expect_same_bf16(x.values<uint16_t>(), want, "residual_add");
    EXPECT_TRUE(out.walls_intact() && x.walls_intact());
  }
}

}  // namespace
}  // namespace lockstep
