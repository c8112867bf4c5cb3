#include "engine/ops/hadamard/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "engine/base/float_formats.h"
#include "engine/ops/common/guarded_floats.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace tolerance;
using op_test::GuardedFloats;
using op_test::on_every_target;
using op_test::random_floats;
using op_test::random_integers;
using op_test::same_bits;
using op_test::worst_ratio;

constexpr int kWidths[] = {16, 32, 64, 128, 256, 512, 1024};

struct Reference {
  std::vector<double> value;
  std::vector<double> bound;
};

// The Sylvester matrix entry by entry: H[i, j] = (-1)^popcount(i & j).
Reference reference(const std::vector<float>& x, int width, double factor) {
  Reference r;
  for (size_t row = 0; row < x.size(); row += width) {
    double condition = 0;
    for (int j = 0; j < width; ++j) condition += std::fabs(double{x[row + j]});
    for (int i = 0; i < width; ++i) {
      double sum = 0;
      for (int j = 0; j < width; ++j) {
        sum += (std::popcount(static_cast<unsigned>(i & j)) % 2 == 0 ? 1.0 : -1.0) * x[row + j];
      }
      r.value.push_back(sum * factor);
      r.bound.push_back(hadamard_bound(width, condition / std::sqrt(width)));
    }
  }
  return r;
}

std::vector<float> transformed(std::vector<float> x, int width, Rounding rounding, int n_threads) {
  ThreadPool pool(n_threads);
  hadamard(x.data(), width, static_cast<int64_t>(x.size()) / width, width, rounding, pool);
  return x;
}

TEST(Hadamard, IsWithinTheBoundOfTheFloat64Matrix) {
  on_every_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const int width : kWidths) {
      const auto x = random_floats(width, int64_t{3} * width, 2.0f);
      const auto y = transformed(x, width, Rounding::none, 1);
      const Reference exact = reference(x, width, 1.0 / std::sqrt(width));
      EXPECT_LE(worst_ratio(y, exact.value, exact.bound), 1.0) << width;
      EXPECT_GT(worst_ratio(y, reference(x, width, 1.0).value, exact.bound), 10.0) << "no factor";
    }
  });
}

TEST(Hadamard, IsExactOnIntegersWhenTheFactorIs) {
  on_every_target([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const int width : {16, 64, 256, 1024}) {
      const auto x = random_integers(width, int64_t{2} * width, 7);
      const auto y = transformed(x, width, Rounding::none, 1);
      const Reference exact = reference(x, width, 1.0 / std::sqrt(width));
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(double{y[i]}, exact.value[i]) << width;
      EXPECT_TRUE(same_bits(x, transformed(y, width, Rounding::none, 1))) << "not an involution";
    }
  });
}

TEST(Hadamard, UndoesItself) {
  for (const int width : kWidths) {
    const auto x = random_floats(7, width, 1.0f);
    const auto back =
        transformed(transformed(x, width, Rounding::none, 1), width, Rounding::none, 1);
    // Each pass adds at most bound(condition); the second maps the first one's error with norm 1.
    double sum = 0;
    for (const float v : x) sum += std::fabs(double{v});
    const double bound = 2 * hadamard_bound(width, sum / std::sqrt(width)) * std::sqrt(width);
    for (int i = 0; i < width; ++i) EXPECT_NEAR(back[i], x[i], bound);
  }
}

TEST(Hadamard, BitsDependOnTheRowAlone) {
  const int width = 256;
  const auto x = random_floats(3, int64_t{50} * width, 1.0f);
  std::vector<float> first;
  on_every_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    const auto all = transformed(x, width, Rounding::none, 1);
    if (first.empty()) first = all;
    EXPECT_TRUE(same_bits(all, first));
    EXPECT_TRUE(same_bits(all, transformed(x, width, Rounding::none, 2)));
    const std::vector<float> one(x.begin() + 17 * width, x.begin() + 18 * width);
    const std::vector<float> same_row(all.begin() + 17 * width, all.begin() + 18 * width);
    EXPECT_TRUE(same_bits(same_row, transformed(one, width, Rounding::none, 1)));
  });
}

TEST(Hadamard, RoundsOnceAndLeavesWhatLiesBetweenRows) {
  const int width = 64;
  const int64_t stride = width + 5;
  const auto x = random_floats(4, width * 3, 1.0f);
  const auto plain = transformed(x, width, Rounding::none, 1);
  GuardedFloats buffer(3 * stride);
  for (int64_t r = 0; r < 3; ++r) {
    std::copy(x.begin() + r * width, x.begin() + (r + 1) * width, buffer.data() + r * stride);
  }
  ThreadPool pool(1);
  hadamard(buffer.data(), stride, 3, width, Rounding::bf16, pool);
  EXPECT_TRUE(buffer.walls_intact());
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t i = 0; i < stride; ++i) {
      const float got = buffer.data()[r * stride + i];
      if (i < width) {
        EXPECT_EQ(got, round_to_bf16(plain[r * width + i]));
      } else {
        EXPECT_TRUE(GuardedFloats::is_guard(got));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
