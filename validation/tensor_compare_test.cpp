#include "validation/tensor_compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "validation/testing/synthetic_run.h"
#include "validation/tolerance.h"

namespace lockstep {
namespace {

using testing::random_tensor;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

const TensorLimit kFp32{.rel_l2 = tolerance::kFp32RelL2};
// What the golden model's noisiest tap allows.
const TensorLimit kBf16{.rel_l2 = 3 * 0.0175, .one_minus_cos = 9 * 2.5e-4};

FloatTensor oracle_tensor() {
  return random_tensor({8, 32}, 1);
}

TEST(TensorCompare, EqualTensorsHaveNoDifference) {
  const FloatTensor b = oracle_tensor();
  const TensorDiff diff = compare_tensors(b, b);
  EXPECT_EQ(diff.rel_l2, 0);
  EXPECT_NEAR(diff.worst_cos, 1, 1e-12);
  EXPECT_EQ(diff.max_ulp, 0u);
  EXPECT_EQ(violation(diff, {.rel_l2 = 0}), "");
}

TEST(TensorCompare, KnownNumbers) {
  const FloatTensor b{{2, 2}, {3, 4, 0, 5}};
  const FloatTensor a{{2, 2}, {3, 4, 5, 0}};
  const TensorDiff diff = compare_tensors(a, b);
  EXPECT_DOUBLE_EQ(diff.rel_l2, 1.0);  // sqrt(50) / sqrt(50)
  EXPECT_DOUBLE_EQ(diff.worst_cos, 0.0);
  EXPECT_EQ(diff.worst_cos_row, 1);
  EXPECT_EQ(diff.worst_at, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(diff.worst_a, 5);
  EXPECT_EQ(diff.worst_b, 0);
}

TEST(TensorCompare, CountsUlps) {
  FloatTensor b{{1, 3}, {1.0f, -0.0f, 2.0f}};
  FloatTensor a{{1, 3}, {std::nextafter(1.0f, 2.0f), 0.0f, 2.0f}};
  EXPECT_EQ(compare_tensors(a, b).max_ulp, 1u);
  a.values[1] = std::numeric_limits<float>::denorm_min();
  b.values[1] = -std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(compare_tensors(a, b).max_ulp, 2u);
}

struct Mutant {
  const char* name;
  std::function<void(FloatTensor& a)> plant;
};

void shift_rows(FloatTensor& a, int64_t rows) {
  std::rotate(a.values.begin(), a.values.begin() + rows * a.row_length(), a.values.end());
}

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> kMutants = {
      {"NaN", [](FloatTensor& a) { a.values[40] = kNaN; }},
      {"negative NaN", [](FloatTensor& a) { a.values[40] = -kNaN; }},
      {"infinity", [](FloatTensor& a) { a.values[40] = kInf; }},
      {"negative infinity", [](FloatTensor& a) { a.values[40] = -kInf; }},
      {"everything negated",
       [](FloatTensor& a) {
         for (float& v : a.values) v = -v;
       }},
      {"sign flip of one element",
       [](FloatTensor& a) {
         auto largest = std::max_element(a.values.begin(), a.values.end());
         *largest = -*largest;
       }},
      {"one element a quarter off",
       [](FloatTensor& a) { *std::max_element(a.values.begin(), a.values.end()) += 0.5f; }},
      {"two rows swapped",
       [](FloatTensor& a) {
         std::swap_ranges(a.values.begin() + 32, a.values.begin() + 64, a.values.begin() + 160);
       }},
      {"transposed, same shape",
       [](FloatTensor& a) {
         const std::vector<float> from = a.values;
         for (size_t i = 0; i < from.size(); ++i) a.values[i % 32 * 8 + i / 32] = from[i];
       }},
      {"transposed shape",
       [](FloatTensor& a) {
         a.shape = {32, 8};
       }},
      {"stale previous output",
       [](FloatTensor& a) {
         a = random_tensor({8, 32}, 2);
       }},
      {"stale last row",
       [](FloatTensor& a) { std::copy_n(a.values.begin() + 192, 32, a.values.begin() + 224); }},
      {"last row missing",
       [](FloatTensor& a) {
         a.shape = {7, 32};
         a.values.resize(224);
       }},
      {"last row zero",
       [](FloatTensor& a) { std::fill(a.values.begin() + 224, a.values.end(), 0.0f); }},
      {"halves of the row swapped (another rank's shard)",
       [](FloatTensor& a) {
         for (int row = 0; row < 8; ++row) {
           auto begin = a.values.begin() + row * 32;
           std::rotate(begin, begin + 16, begin + 32);
         }
       }},
      {"all zeros", [](FloatTensor& a) { std::fill(a.values.begin(), a.values.end(), 0.0f); }},
      {"constant", [](FloatTensor& a) { std::fill(a.values.begin(), a.values.end(), 0.5f); }},
      {"off by one token", [](FloatTensor& a) { shift_rows(a, 1); }},
      {"scaled by 1.1",
       [](FloatTensor& a) {
         for (float& v : a.values) v *= 1.1f;
       }},
      {"partial sum added twice",
       [](FloatTensor& a) {
         for (float& v : a.values) v += v;
       }},
  };
  return kMutants;
}

TEST(TensorCompare, EveryMutantBreaksBothTolerances) {
  const FloatTensor b = oracle_tensor();
  for (const Mutant& mutant : mutants()) {
    FloatTensor a = b;
    mutant.plant(a);
    const TensorDiff diff = compare_tensors(a, b);
    EXPECT_NE(violation(diff, kFp32), "") << mutant.name;
    EXPECT_NE(violation(diff, kBf16), "") << mutant.name;
  }
}

TEST(TensorCompare, SmallFaultsBreakTheFp32Tolerance) {
  const FloatTensor b = oracle_tensor();
  FloatTensor one_element = b;
  one_element.values[17] *= 1.001f;
  EXPECT_NE(violation(compare_tensors(one_element, b), kFp32), "");
  FloatTensor rounded = b;
  for (float& value : rounded.values) value = std::round(value * 1024) / 1024;
  EXPECT_NE(violation(compare_tensors(rounded, b), kFp32), "");
}

TEST(TensorCompare, HonestRoundingKeepsBothTolerances) {
  const FloatTensor b = oracle_tensor();
  FloatTensor a = b;
  for (float& value : a.values) value = std::nextafter(value, kInf);
  EXPECT_EQ(violation(compare_tensors(a, b), kFp32), "");
  EXPECT_EQ(violation(compare_tensors(a, b), kBf16), "");
}

TEST(TensorCompare, AnOracleThatProvesNothingIsCalledVacuous) {
  const FloatTensor good = oracle_tensor();
  const auto vacuous = [&](const std::function<void(FloatTensor&)>& plant) {
    FloatTensor b = good;
    plant(b);
    return compare_tensors(b, b).vacuous;  // equal to itself, and still worth nothing
  };
  EXPECT_EQ(compare_tensors(good, good).vacuous, "");
  EXPECT_NE(vacuous([](FloatTensor& b) { b.values[3] = kNaN; }), "");
  EXPECT_NE(vacuous([](FloatTensor& b) { b.values[3] = -kNaN; }), "");
  EXPECT_NE(vacuous([](FloatTensor& b) { b.values[3] = -kInf; }), "");
  EXPECT_NE(vacuous([](FloatTensor& b) { std::fill(b.values.begin(), b.values.end(), 0.f); }), "");
  EXPECT_NE(vacuous([](FloatTensor& b) { std::fill(b.values.begin(), b.values.end(), -2.f); }), "");
  EXPECT_NE(vacuous([](FloatTensor& b) { b = {{0, 32}, {}}; }), "");
  EXPECT_EQ(compare_tensors({{1}, {2}}, {{1}, {2}}).vacuous, "") << "one number is no constant";
}

TEST(TensorCompare, NaNOnBothSidesIsNoAgreement) {
  FloatTensor b = oracle_tensor();
  b.values[9] = kNaN;
  const TensorDiff diff = compare_tensors(b, b);
  EXPECT_NE(violation(diff, {.rel_l2 = 1e9}), "");
  EXPECT_NE(diff.vacuous, "");
}

TEST(TensorCompare, NonFiniteMessageNamesThePlace) {
  const FloatTensor b = oracle_tensor();
  FloatTensor a = b;
  a.values[2 * 32 + 5] = kNaN;
  EXPECT_EQ(violation(compare_tensors(a, b), kFp32),
            "1 NaN or infinite values, the first at [2, 5]");
}

}  // namespace
}  // namespace lockstep
