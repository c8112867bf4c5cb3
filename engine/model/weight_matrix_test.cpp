#include "engine/model/weight_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

WeightMatrix view_of(Codec codec, int64_t n_rows, int64_t n_cols, const void* codes) {
  WeightMatrix matrix;
  matrix.codec = codec;
  matrix.n_rows = n_rows;
  matrix.n_cols = n_cols;
  matrix.codes = static_cast<const std::byte*>(codes);
  matrix.row_bytes = codec_row_bytes(codec, n_cols);
  return matrix;
}

std::vector<float> decoded(const WeightMatrix& matrix, int64_t row) {
  std::vector<float> out(static_cast<size_t>(matrix.n_cols));
  decode_row(matrix, row, out.data());
  return out;
}

// Byte i is i: codes of one byte, or two nibbles with the even column low.
std::vector<uint8_t> all_bytes() {
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < 256; ++i) bytes[i] = static_cast<uint8_t>(i);
  return bytes;
}

TEST(WeightMatrix, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (const Codec codec : {Codec::f32, Codec::bf16, Codec::f16, Codec::fp8, Codec::fp8_block,
                            Codec::nvfp4, Codec::int4}) {
    names.insert(codec_name(codec));
  }
  EXPECT_EQ(names.size(), 7u);
}

TEST(WeightMatrix, RowBytesFollowTheCodeWidth) {
  EXPECT_EQ(codec_row_bytes(Codec::f32, 48), 192);
  EXPECT_EQ(codec_row_bytes(Codec::bf16, 48), 96);
  EXPECT_EQ(codec_row_bytes(Codec::f16, 48), 96);
  EXPECT_EQ(codec_row_bytes(Codec::fp8, 48), 48);
  EXPECT_EQ(codec_row_bytes(Codec::fp8_block, 48), 48);
  EXPECT_EQ(codec_row_bytes(Codec::nvfp4, 48), 24);
  EXPECT_EQ(codec_row_bytes(Codec::int4, 48), 24);
  EXPECT_EQ(codec_column_granule(Codec::nvfp4), 16);
  EXPECT_EQ(codec_column_granule(Codec::int4), 16);
  EXPECT_EQ(codec_column_granule(Codec::fp8), 1);
  EXPECT_DEATH(codec_row_bytes(Codec::int4, 40), "granule");
}

TEST(WeightMatrix, WideFloatsAreTheirOwnValues) {
  const float values[4] = {0.0f, -1.5f, 0x1p-140f, 3.0e38f};
  EXPECT_EQ(decoded(view_of(Codec::f32, 2, 2, values), 1),
            (std::vector<float>{0x1p-140f, 3.0e38f}));
  const uint16_t bf16[3] = {0x3f80, 0xc040, 0x0001};
  EXPECT_EQ(decoded(view_of(Codec::bf16, 1, 3, bf16), 0),
            (std::vector<float>{1.0f, -3.0f, 0x1p-133f}));
  const uint16_t f16[4] = {0x3c00, 0xc200, 0x0001, 0x7bff};
  EXPECT_EQ(decoded(view_of(Codec::f16, 1, 4, f16), 0),
            (std::vector<float>{1.0f, -3.0f, 0x1p-24f, 65504.0f}));
}

TEST(WeightMatrix, Fp8DecodesAll256Codes) {
  const std::vector<uint8_t> bytes = all_bytes();
  const std::vector<float> row = decoded(view_of(Codec::fp8, 1, 256, bytes.data()), 0);
  for (size_t code = 0; code < 256; ++code) {
    const int exponent = static_cast<int>(code >> 3 & 15);
    const int mantissa = static_cast<int>(code & 7);
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(row[code]));
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(double{row[code]}, code < 128 ? magnitude : -magnitude) << code;
    EXPECT_EQ(std::signbit(row[code]), code >= 128) << code;
  }
}

TEST(WeightMatrix, RowScaleMultipliesTheDecodedRow) {
  const std::vector<uint8_t> bytes = {0x38, 0x40, 0x38, 0x40};  // 1, 2
  const float scales[2] = {0.25f, -3.0f};
  WeightMatrix matrix = view_of(Codec::fp8, 2, 2, bytes.data());
  matrix.row_scale = scales;
  EXPECT_EQ(decoded(matrix, 0), (std::vector<float>{0.25f, 0.5f}));
  EXPECT_EQ(decoded(matrix, 1), (std::vector<float>{-3.0f, -6.0f}));
}

TEST(WeightMatrix, Fp8BlocksUseTheScaleOfTheirTile) {
  const std::vector<uint8_t> ones(129 * 130, 0x38);
  const float scales[6] = {1.0f, 2.0f, -1.0f, 3.0f, 4.0f, -1.0f};  // stride 3: the last is padding
  WeightMatrix matrix = view_of(Codec::fp8_block, 129, 130, ones.data());
  matrix.block_scales = scales;
  matrix.block_scale_stride = 3;
  for (const auto& [row, left, right] :
       {std::tuple<int64_t, float, float>{0, 1.0f, 2.0f}, {127, 1.0f, 2.0f}, {128, 3.0f, 4.0f}}) {
    const std::vector<float> values = decoded(matrix, row);
    EXPECT_EQ(values[0], left);
    EXPECT_EQ(values[127], left);
    EXPECT_EQ(values[128], right);
    EXPECT_EQ(values[129], right);
  }
}

TEST(WeightMatrix, Nvfp4DecodesAllBytesWithTheirBlockScales) {
  const std::vector<uint8_t> bytes = all_bytes();
  std::vector<uint8_t> scales(32);
  for (size_t i = 0; i < 32; ++i) scales[i] = static_cast<uint8_t>(4 * i);  // subnormal to 0x7c
  WeightMatrix matrix = view_of(Codec::nvfp4, 1, 512, bytes.data());
  matrix.block_scales = scales.data();
  matrix.block_scale_stride = 32;
  const std::vector<float> row = decoded(matrix, 0);
  for (size_t k = 0; k < 512; ++k) {
    const size_t code = k % 2 == 0 ? k / 2 % 16 : k / 32;
    const double exact = double{kE2m1Values[code]} * double{e4m3_to_float(scales[k / 16])};
    EXPECT_EQ(double{row[k]}, exact) << k;
  }
}

TEST(WeightMatrix, Int4SubtractsTheZeroPointThenScales) {
  const std::vector<uint8_t> bytes = all_bytes();
  std::vector<float> scales;
  std::vector<uint8_t> zeros;
  for (uint8_t g = 0; g < 17; ++g) {
    scales.push_back(0.1f * static_cast<float>(g + 1));
    zeros.push_back(g);  // all legal zero points, 16 among them
  }
  for (uint8_t g = 0; g < 17; ++g) {
    WeightMatrix matrix = view_of(Codec::int4, 1, 512, bytes.data());
    matrix.group = 512;
    matrix.block_scales = &scales[g];
    matrix.block_scale_stride = 1;
    matrix.zero_points = &zeros[g];
    const std::vector<float> row = decoded(matrix, 0);
    for (size_t k = 0; k < 512; ++k) {
      const int q = static_cast<int>(k % 2 == 0 ? k / 2 % 16 : k / 32);
      EXPECT_EQ(row[k], static_cast<float>(q - g) * scales[g]);
    }
    matrix.zero_points = nullptr;  // means 8
    EXPECT_EQ(decoded(matrix, 0)[511], 7.0f * scales[g]);
  }
}

TEST(WeightMatrix, Int4GroupsAndRowsFindTheirOwnScales) {
  const std::vector<uint8_t> codes(32, 0x99);  // q = 9 everywhere
  const float scales[6] = {1.0f, 2.0f, 0.0f, 3.0f, 4.0f, 0.0f};
  const uint8_t zeros[6] = {8, 7, 0, 6, 5, 0};
  WeightMatrix matrix = view_of(Codec::int4, 2, 32, codes.data());
  matrix.group = 16;
  matrix.block_scales = scales;
  matrix.zero_points = zeros;
  matrix.block_scale_stride = 3;
  EXPECT_EQ(decoded(matrix, 0)[15], 1.0f);
  EXPECT_EQ(decoded(matrix, 0)[16], 4.0f);
  EXPECT_EQ(decoded(matrix, 1)[15], 9.0f);
  EXPECT_EQ(decoded(matrix, 1)[16], 16.0f);
}

}  // namespace
}  // namespace lockstep
