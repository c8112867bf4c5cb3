// The shared lane arithmetic on every instruction set of this machine.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/common/lanes_test.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/base/math.h"
#include "engine/base/philox.h"
#include "engine/ops/common/cpu_target.h"
#include "engine/ops/common/lanes-inl.h"
#include "engine/ops/common/tolerance.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep {
namespace HWY_NAMESPACE {

// out holds n values of each function, n a multiple of 16.
void elementwise(const float* x, int64_t n, float* exp, float* sigmoid, float* silu,
                 float* rounded) {
  for (int64_t k = 0; k < n; k += 16) {
    const Lanes16 v = lanes_load(x + k);
    lanes_store(lanes_exp(v), exp + k);
    Lanes16 s;
    Lanes16 u;
    for (int i = 0; i < kVecs; ++i) {
      s.v[i] = sigmoid_vec(v.v[i]);
      u.v[i] = silu_vec(v.v[i]);
    }
    lanes_store(s, sigmoid + k);
    lanes_store(u, silu + k);
    lanes_store(lanes_round(v, Rounding::bf16), rounded + k);
  }
}

// x holds 16 accumulators of 16 lanes: one sum at a time, and together.
void tree_sums(const float* x, float* one_by_one, float* together) {
  Lanes16 acc[16];
  for (int i = 0; i < 16; ++i) {
    acc[i] = lanes_load(x + i * 16);
    one_by_one[i] = lanes_tree_sum(acc[i]);
  }
  for (int i = 0; i < 16; i += kVecLanes) {
    hn::StoreU(lanes_tree_sums<kVecLanes>(acc + i), FloatTag(), together + i);
  }
}

void tree_sums_of_six(const float* x, float* sums) {
  Lanes16 acc[6];
  for (int i = 0; i < 6; ++i) acc[i] = lanes_load(x + i * 16);
  alignas(64) float all[kVecLanes];
  hn::Store(lanes_tree_sums<6>(acc), FloatTag(), all);
  for (int i = 0; i < 6; ++i) sums[i] = all[i];
}

float dot(const float* a, const float* b, int64_t n) {
  return lanes_dot(a, b, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {
namespace {

HWY_EXPORT(elementwise);
HWY_EXPORT(tree_sums);
HWY_EXPORT(tree_sums_of_six);
HWY_EXPORT(dot);

uint32_t bits_of(float x) {
  return std::bit_cast<uint32_t>(x);
}

struct Elementwise {
  explicit Elementwise(const std::vector<float>& x)
      : exp(x.size()), sigmoid(x.size()), silu(x.size()), rounded(x.size()) {
    HWY_DYNAMIC_DISPATCH(elementwise)
    (x.data(), static_cast<int64_t>(x.size()), exp.data(), sigmoid.data(), silu.data(),
     rounded.data());
  }
  std::vector<float> exp, sigmoid, silu, rounded;
};

// Every 601st float: all binades, signs, subnormals, infinities and NaNs; and dense around the
// limits.
std::vector<float> sample_floats() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 6007) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (int i = -900000; i <= 900000; ++i) x.push_back(static_cast<float>(i) * 1.17e-4f);
  while (x.size() % 16 != 0) x.push_back(0.0f);
  return x;
}

// Distance in units of the last place of the correctly rounded result.
double ulps(float got, double exact) {
  const auto nearest = static_cast<float>(exact);
  int exponent = 0;
  std::frexp(nearest, &exponent);
  const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(double{got} - exact) / ulp;
}

TEST(Lanes, ExpIsWithinItsBound) {
  const std::vector<float> x = sample_floats();
  const Elementwise result(x);
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(result.exp[i]));
    } else if (x[i] > 88.73f) {
      ASSERT_EQ(result.exp[i], std::numeric_limits<float>::infinity()) << x[i];
    } else if (x[i] < -104.0f) {
      ASSERT_EQ(result.exp[i], 0.0f) << x[i];
    } else if (x[i] < 88.72f) {
      worst = std::max(worst, ulps(result.exp[i], exp_f64(double{x[i]})));
    }
  }
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_LE(worst, tolerance::kExpUlps);
  EXPECT_GT(worst, 0.5);  // the measurement sees errors at all
}

TEST(Lanes, ExpOfZeroIsOne) {
  const std::vector<float> x(16, 0.0f);
  for (const float one : Elementwise(x).exp) EXPECT_EQ(one, 1.0f);
}

TEST(Lanes, RoundsToBf16AsTheScalarFunctionDoes) {
  const std::vector<float> x = sample_floats();
  const Elementwise result(x);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(result.rounded[i]));
    } else {
      ASSERT_EQ(bits_of(result.rounded[i]), bits_of(round_to_bf16(x[i])));
    }
  }
}

TEST(Lanes, EveryTargetGivesTheSameBits) {
  const std::vector<float> x = sample_floats();
  std::vector<Elementwise> results;
  for (const std::string& target : available_cpu_targets()) {
    select_cpu_target(target);
    results.emplace_back(x);
  }
  select_cpu_target("auto");
  for (const Elementwise& result : results) {
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(bits_of(result.exp[i]), bits_of(results[0].exp[i])) << x[i];
      ASSERT_EQ(bits_of(result.sigmoid[i]), bits_of(results[0].sigmoid[i])) << x[i];
      ASSERT_EQ(bits_of(result.silu[i]), bits_of(results[0].silu[i])) << x[i];
      ASSERT_EQ(bits_of(result.rounded[i]), bits_of(results[0].rounded[i])) << x[i];
    }
  }
}

float scalar_tree(const float* lanes) {
  float t[16];
  std::copy_n(lanes, 16, t);
  for (int half = 8; half >= 1; half /= 2) {
    for (int l = 0; l < half; ++l) t[l] = t[l] + t[l + half];
  }
  return t[0];
}

TEST(Lanes, TreeSumsKeepTheOrderOnEveryTarget) {
  PhiloxStream random(3);
  for (const std::string& target : available_cpu_targets()) {
    select_cpu_target(target);
    for (int round = 0; round < 200; ++round) {
      float x[256];
      for (float& value : x)
        value = std::ldexp(random.next_uniform() - 0.5f, static_cast<int>(random.next_below(12)));
      float one_by_one[16];
      float together[16];
      float six[6];
      HWY_DYNAMIC_DISPATCH(tree_sums)(x, one_by_one, together);
      HWY_DYNAMIC_DISPATCH(tree_sums_of_six)(x, six);
      for (int i = 0; i < 16; ++i) {
        ASSERT_EQ(bits_of(one_by_one[i]), bits_of(scalar_tree(x + i * 16))) << target;
        ASSERT_EQ(bits_of(together[i]), bits_of(one_by_one[i])) << target << " sum " << i;
        if (i < 6) {
          ASSERT_EQ(bits_of(six[i]), bits_of(one_by_one[i])) << target << " sum " << i;
        }
      }
    }
  }
  select_cpu_target("auto");
}

TEST(Lanes, DotFollowsTheLaneOrderOnEveryTarget) {
  PhiloxStream random(4);
  std::vector<float> a(768);
  std::vector<float> b(768);
  for (float& value : a) value = random.next_uniform() - 0.5f;
  for (float& value : b) value = random.next_uniform() - 0.5f;
  for (const std::string& target : available_cpu_targets()) {
    select_cpu_target(target);
    for (const int64_t n : {16, 48, 768}) {
      float lanes[16] = {};
      for (int64_t k = 0; k < n; ++k) {
        lanes[k % 16] =
            std::fma(a[static_cast<size_t>(k)], b[static_cast<size_t>(k)], lanes[k % 16]);
      }
      EXPECT_EQ(bits_of(HWY_DYNAMIC_DISPATCH(dot)(a.data(), b.data(), n)),
                bits_of(scalar_tree(lanes)));
    }
  }
  select_cpu_target("auto");
}

}  // namespace
}  // namespace lockstep
#endif  // HWY_ONCE
