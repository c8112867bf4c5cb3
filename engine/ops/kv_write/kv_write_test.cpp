#include "engine/ops/kv_write/kv_write.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "engine/base/float_formats.h"
#include "engine/ops/common/guarded_floats.h"
#include "engine/ops/common/op_test_util.h"

namespace lockstep {
namespace {

using op_test::random_floats;
using op_test::random_integers;
using op_test::same_bits;

constexpr KvType kTypes[] = {KvType::fp32, KvType::bf16, KvType::fp16, KvType::int8};
constexpr auto kUntouched = std::byte{0xa5};

struct Cache {
  KvType type;
  int n_kv_heads;
  int head_dim;
  std::vector<uint32_t> page_table{2, 0, 1};  // scrambled: positions do not lie in order
  std::vector<std::byte> memory;

  Cache(KvType t, int heads, int dim) : type(t), n_kv_heads(heads), head_dim(dim) {
    memory.assign(static_cast<size_t>(3 * kv_page_bytes(t, heads, dim)), kUntouched);
  }
  KvView view() { return {type, n_kv_heads, head_dim, memory.data(), page_table.data()}; }
};

struct Tokens {
  std::vector<float> k, v;
  int64_t k_stride, v_stride;
};

Tokens make_tokens(const Cache& cache, int64_t n, float magnitude) {
  const int64_t width = int64_t{cache.n_kv_heads} * cache.head_dim;
  return {random_floats(1, n * (width + 8), magnitude),
          random_floats(2, n * (width + 24), magnitude), width + 8, width + 24};
}

void write(Cache& cache, const Tokens& tokens, int64_t first, int64_t n) {
  kv_write(
      {cache.view(), tokens.k.data(), tokens.v.data(), tokens.k_stride, tokens.v_stride, first, n});
}

TEST(KvWrite, TouchesExactlyTheBytesOfItsPositions) {
  for (const KvType type : kTypes) {
    Cache cache(type, 2, 64);
    const Tokens tokens = make_tokens(cache, 20, 1.0f);
    write(cache, tokens, 55, 20);  // crosses a page border
    // The layout of the contract, written out once more.
    std::set<int64_t> expected;
    const int64_t element = kv_element_bytes(type);
    for (int64_t position = 55; position < 75; ++position) {
      const int64_t page = cache.page_table[position / 64] * kv_page_bytes(type, 2, 64);
      for (int64_t vector = 0; vector < 4; ++vector) {  // K head 0, K head 1, V head 0, V head 1
        const int64_t row = vector * 64 + position % 64;
        for (int64_t i = 0; i < 64 * element; ++i) expected.insert(page + row * 64 * element + i);
        if (type != KvType::int8) continue;
        for (int64_t i = 0; i < 2; ++i) expected.insert(page + 4 * 64 * 64 + row * 2 + i);
      }
    }
    int64_t n_changed = 0;
    for (size_t i = 0; i < cache.memory.size(); ++i) {
      if (cache.memory[i] == kUntouched) continue;
      ++n_changed;
      ASSERT_TRUE(expected.contains(static_cast<int64_t>(i))) << i;
    }
    // A written byte equals the pattern by chance once in 256.
    EXPECT_GT(n_changed, static_cast<int64_t>(expected.size()) * 95 / 100);
  }
}

TEST(KvWrite, ReadsBackEveryVectorFromItsOwnPlace) {
  for (const KvType type : kTypes) {
    Cache cache(type, 3, 128);
    Tokens tokens = make_tokens(cache, 130, 1.0f);
    // Multiples of 1/64 (V: 1/32) up to 127 of them, with 127 in every group: exact in all four
    // types, and K and V have different scales.
    for (auto* values : {&tokens.k, &tokens.v}) {
      *values =
          random_integers(values == &tokens.k ? 5 : 6, static_cast<int64_t>(values->size()), 127);
      for (size_t i = 0; i < values->size(); i += 8) (*values)[i] = 127.0f;
      for (float& x : *values) x /= values == &tokens.k ? 64.0f : 32.0f;
    }
    write(cache, tokens, 0, 50);
    Tokens rest = tokens;
    rest.k.erase(rest.k.begin(), rest.k.begin() + 50 * tokens.k_stride);
    rest.v.erase(rest.v.begin(), rest.v.begin() + 50 * tokens.v_stride);
    write(cache, rest, 50, 80);
    std::vector<float> got(128);
    for (int64_t t = 0; t < 130; ++t) {
      for (int h = 0; h < 3; ++h) {
        const float* k = tokens.k.data() + t * tokens.k_stride + h * 128;
        const float* v = tokens.v.data() + t * tokens.v_stride + h * 128;
        kv_read(cache.view(), false, h, t, got.data());
        ASSERT_TRUE(std::equal(got.begin(), got.end(), k)) << t;
        kv_read(cache.view(), true, h, t, got.data());
        ASSERT_TRUE(std::equal(got.begin(), got.end(), v)) << t;
      }
    }
  }
}

std::vector<float> stored(KvType type, const std::vector<float>& values) {
  Cache cache(type, 1, static_cast<int>(values.size()));
  kv_write({cache.view(), values.data(), values.data(), 0, 0, 7, 1});
  std::vector<float> out(values.size());
  kv_read(cache.view(), true, 0, 7, out.data());
  return out;
}

TEST(KvWrite, RoundsToTheNearestValueOfTheType) {
  const auto values = random_floats(9, 256, 30.0f);
  EXPECT_TRUE(same_bits(stored(KvType::fp32, values), values));
  const auto bf16 = stored(KvType::bf16, values);
  const auto fp16 = stored(KvType::fp16, values);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(bf16[i], round_to_bf16(values[i]));
    const double spacing = std::exp2(std::max(-14, std::ilogb(values[i])) - 10);
    EXPECT_LE(std::fabs(double{fp16[i]} - values[i]), spacing / 2);
  }
}

TEST(KvWrite, Fp16Saturates) {
  std::vector<float> values(16, 1.0f);
  values[0] = 1e6f;
  values[1] = -std::numeric_limits<float>::infinity();
  values[2] = 65519.0f;
  values[3] = std::nanf("");
  const auto got = stored(KvType::fp16, values);
  EXPECT_EQ(got[0], 65504.0f);
  EXPECT_EQ(got[1], -65504.0f);
  EXPECT_EQ(got[2], 65504.0f);
  EXPECT_TRUE(std::isnan(got[3])) << "a NaN must stay visible";
}

TEST(KvWrite, Int8DividesByTheStoredScale) {
  Cache cache(KvType::int8, 1, 256);
  int n_codes_that_the_unrounded_scale_changes = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const auto values = random_floats(100 + trial, 256, trial % 2 == 0 ? 3.0f : 0.01f);
    kv_write({cache.view(), values.data(), values.data(), 0, 0, 0, 1});
    const auto* codes = reinterpret_cast<const int8_t*>(cache.view().k_codes(0, 0));
    for (int d = 0; d < 256; ++d) {
      const int group = d / kInt8ScaleGroup * kInt8ScaleGroup;
      float largest = 0;
      for (int i = 0; i < kInt8ScaleGroup; ++i) {
        largest = std::max(largest, std::fabs(values[group + i]));
      }
      const uint16_t bits = cache.view().k_scales(0, 0)[d / kInt8ScaleGroup];
      ASSERT_EQ(bits, float_to_f16(largest / 127.0f));
      const float scale = f16_to_float(bits);
      const float wanted = std::clamp(std::nearbyint(values[d] / scale), -127.0f, 127.0f);
      ASSERT_EQ(codes[d], static_cast<int8_t>(wanted));
      // Half a step, except at the ends where a scale that was rounded down clips by 2^-11 of 127.
      EXPECT_LE(std::fabs(codes[d] * scale - values[d]), scale * 0.57f);
      const float plain = std::nearbyint(values[d] / (largest / 127.0f));
      n_codes_that_the_unrounded_scale_changes += static_cast<int>(plain) != codes[d];
    }
  }
  EXPECT_GT(n_codes_that_the_unrounded_scale_changes, 0) << "data cannot tell the two apart";
}

TEST(KvWrite, Int8GroupsOfZeroTinyHugeAndNaN) {
  std::vector<float> values(256, 0.0f);
  values[64] = 1e-6f;  // its scale is below half of the smallest binary16
  values[128] = 1e9f;
  values[129] = -1.0f;
  values[200] = std::nanf("");
  const auto got = stored(KvType::int8, values);
  for (int d = 0; d < 128; ++d) EXPECT_EQ(got[d], 0.0f);
  EXPECT_EQ(got[128], 127.0f * 65504.0f);
  EXPECT_EQ(got[129], 0.0f);
  for (int d = 192; d < 256; ++d) EXPECT_TRUE(std::isnan(got[d]));
}

}  // namespace
}  // namespace lockstep
