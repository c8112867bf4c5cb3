// Packed weights, checked without a card: words through the decoders that the kernels use, whole
// matrices through their inverse, and fragments through the formulas of the matrix instructions.
#include "engine/ops/linear/cuda/linear_pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/ops/linear/cuda/linear_words.h"
#include "engine/ops/linear/cuda/skinny_shared.h"
#include "engine/ops/linear/cuda/tile_shape.h"
#include "engine/ops/linear/linear_test_matrix.h"

namespace lockstep {
namespace {

constexpr int64_t kCardShared = 227 * 1024;

LinearCudaPlan plan_for(const TestMatrix& matrix, KernelFamily family) {
  const WeightMatrix& view = matrix.view();
  return plan_linear_cuda(view.codec, view.n_rows, view.n_cols, view.group, family, kCardShared,
                          "test");
}

std::string error_of(Codec codec, int64_t n_rows, int64_t n_cols, int64_t group, int64_t shared) {
  try {
    plan_linear_cuda(codec, n_rows, n_cols, group, KernelFamily::sm80, shared, "mlp.down_proj");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

float half_of(uint32_t pair, int half) {
  return f16_to_float(static_cast<uint16_t>(pair >> (16 * half)));
}

TEST(LinearWords, EveryE2m1CodeDecodesInEveryPlace) {
  for (int place = 0; place < 8; ++place) {
    for (uint8_t code = 0; code < 16; ++code) {
      uint8_t codes[8] = {1, 10, 3, 12, 5, 14, 7, 9};
      codes[place] = code;
      uint32_t pairs[4];
      decode_e2m1_word(pack_e2m1_word(codes), pairs);
      for (int i = 0; i < 8; ++i) {
        const float value = std::ldexp(half_of(pairs[i / 2], i % 2), 14);
        ASSERT_EQ(value, kE2m1Values[codes[i]]);
        ASSERT_EQ(std::signbit(value), codes[i] >= 8);
      }
    }
  }
}

TEST(LinearWords, EveryE4m3CodeDecodesInEveryPlace) {
  for (int place = 0; place < 4; ++place) {
    for (int code = 0; code < 256; ++code) {
      uint8_t codes[4] = {0x81, 0x7e, 0x08, 0xf7};
      if (e4m3_is_nan(static_cast<uint8_t>(code))) continue;
      codes[place] = static_cast<uint8_t>(code);
      uint32_t pairs[2];
      decode_e4m3_word(pack_e4m3_word(codes), pairs);
      for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(std::ldexp(half_of(pairs[i / 2], i % 2), 8), e4m3_to_float(codes[i]));
      }
    }
  }
}

TEST(LinearPack, EveryRouteGivesEveryStoredValueBack) {
  for (const LinearRoute& route : linear_routes()) {
    for (const auto& [n_rows, n_cols] :
         {std::pair<int64_t, int64_t>{1, 16}, {16, 128}, {17, 144}, {32, 256}, {150, 400}}) {
      const int64_t group = 32;
      if (route.codec == Codec::int4 && n_cols % group != 0) continue;
      const TestMatrix matrix(route.codec, n_rows, n_cols, 3, group);
      const LinearCudaPlan plan = plan_for(matrix, route.family);
      const std::vector<std::byte> packed = pack_linear(matrix.view(), plan, true, "test");
      ASSERT_EQ(static_cast<int64_t>(packed.size()), plan.weight_bytes);
    }
  }
}

TEST(LinearPack, AChangedByteOfThePackedCodesChangesAValue) {
  for (const LinearRoute& route : linear_routes()) {
    const TestMatrix matrix(route.codec, 16, 128, 4, 32);
    const LinearCudaPlan plan = plan_for(matrix, route.family);
    std::vector<std::byte> packed = pack_linear(matrix.view(), plan, false, "test");
    std::vector<float> before(128);
    unpack_row(packed, plan, 5, before.data());
    int changed = 0;
    for (int64_t i = 0; i < plan.scales_offset; i += 3) {
      packed[static_cast<size_t>(i)] ^= std::byte{0x11};
    }
    std::vector<float> after(128);
    unpack_row(packed, plan, 5, after.data());
    for (size_t k = 0; k < before.size(); ++k) changed += before[k] != after[k];
    EXPECT_GT(changed, 8) << codec_name(route.codec);
  }
}

// What a quadpair of mma.m8n8k4 holds: lane L of the warp gives row r = L mod 4 + 4 (L >= 16) of
// group q = (L mod 16) / 4, so its tile row is 8 q + r.
TEST(LinearPack, LanesOfTheVoltaTileFollowTheQuadpairs) {
  std::vector<int> seen(32);
  for (int lane = 0; lane < 32; ++lane) {
    const int q = lane % 16 / 4;
    const int r = lane % 4 + (lane >= 16 ? 4 : 0);
    EXPECT_EQ(sm70_lane_row(lane), 8 * q + r);
    ++seen[static_cast<size_t>(sm70_lane_row(lane))];
  }
  for (const int count : seen) EXPECT_EQ(count, 1);
}

TEST(LinearPack, SmallBf16ValuesOfARowRoundToAMultipleOfItsScale) {
  TestMatrix matrix(Codec::bf16, 1, 16, 5);
  auto* values = reinterpret_cast<uint16_t*>(matrix.row(0));
  values[0] = float_to_bf16(1.5f);
  values[1] = float_to_bf16(0x1.8p-31f);
  values[2] = float_to_bf16(0x1.8p-39f);
  values[3] = float_to_bf16(-0x1.8p-60f);
  const LinearCudaPlan plan = plan_for(matrix, KernelFamily::sm70);
  const std::vector<std::byte> packed = pack_linear(matrix.view(), plan, false, "test");
  std::vector<float> out(16);
  unpack_row(packed, plan, 0, out.data());
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], 0x1.8p-31f);
  EXPECT_EQ(out[2], 0x1p-38f);
  EXPECT_EQ(out[3], 0.0f);
}

TEST(LinearPlan, WhatIsNotRegisteredIsAnErrorThatNamesTheMatrix) {
  EXPECT_NE(error_of(Codec::f32, 16, 16, 0, kCardShared).find("mlp.down_proj"), std::string::npos);
  EXPECT_NE(error_of(Codec::nvfp4, 16, 24, 0, kCardShared).find("[16, 24]"), std::string::npos);
  EXPECT_NE(error_of(Codec::int4, 16, 48, 16, kCardShared).find("groups of 16"), std::string::npos);
  EXPECT_NE(error_of(Codec::nvfp4, 5120, 17408, 0, kCardShared).find("shared memory"),
            std::string::npos);
  EXPECT_EQ(error_of(Codec::nvfp4, 5120, 8704, 0, kCardShared), "");
}

// Every launch that the plan lets through has a shape; few columns leave half of the card's memory
// to the next kernel.
TEST(LinearPlan, MatricesOfOneLaunchAreOfOneRouteWidthAndGroup) {
  const auto plan = [](Codec codec, int64_t n_rows, int64_t n_cols, int64_t group,
                       KernelFamily family) {
    return plan_linear_cuda(codec, n_rows, n_cols, group, family, kCardShared, "test");
  };
  const LinearCudaPlan first = plan(Codec::int4, 64, 512, 128, KernelFamily::sm80);
  const LinearCudaPlan longer = plan(Codec::int4, 96, 512, 128, KernelFamily::sm80);
  EXPECT_TRUE(multiply_together(first, longer));
  EXPECT_FALSE(multiply_as_halves(first, longer));
  EXPECT_TRUE(multiply_as_halves(first, plan(Codec::int4, 64, 512, 128, KernelFamily::sm80)));
  for (const LinearCudaPlan& other : {plan(Codec::int4, 64, 512, 64, KernelFamily::sm80),
                                      plan(Codec::int4, 64, 1024, 128, KernelFamily::sm80),
                                      plan(Codec::fp8, 64, 512, 0, KernelFamily::sm80),
                                      plan(Codec::int4, 64, 512, 128, KernelFamily::sm70)}) {
    EXPECT_FALSE(multiply_together(first, other));
    EXPECT_FALSE(multiply_as_halves(first, other));
  }
}

TEST(LinearPlan, LaunchesOfUpToEightColumnsFit) {
  for (const LinearRoute& route : linear_routes()) {
    if (route.family != KernelFamily::sm80) continue;
    for (const int64_t n_cols : {3072, 5120, 8704}) {
      for (int n_tokens = 1; n_tokens <= kSkinnyTokens; ++n_tokens) {
        const Sm80Shape shape = skinny_sm80_shape(n_cols, n_tokens, route.stage_bytes, kCardShared);
        ASSERT_GE(shape.stages, 2) << codec_name(route.codec);
        const int64_t bytes = skinny_sm80_bytes(n_cols, n_tokens, shape, route.stage_bytes);
        EXPECT_LE(bytes, kCardShared);
        EXPECT_TRUE(n_tokens > 1 || is_half_of_a_multiprocessor(bytes, kCardShared));
      }
    }
  }
}

// Long prompts fill the card with wide tiles, short ones spread over it in narrow ones.
TEST(TileShape, FollowsTheWork) {
  constexpr int kCard = 132;
  EXPECT_EQ(kTileShapes[tile_shape_for(Codec::nvfp4, 2176, 2048, kCard)].columns, 128);
  EXPECT_EQ(kTileShapes[tile_shape_for(Codec::bf16, 2176, 2048, kCard)].columns, 128);
  EXPECT_EQ(kTileShapes[tile_shape_for(Codec::nvfp4, 320, 64, kCard)].row_tiles, 4);
  // One round of the card rather than two.
  EXPECT_EQ(kScaledTileShapes[tile_shape_for(Codec::fp8_block, 320, 512, kCard)].row_tiles, 12);
  for (const Codec codec : kAllCodecs) {
    const TileShape& narrow = kTileShapes[tile_shape_for(codec, 192, 16, kCard)];
    EXPECT_EQ(narrow.row_tiles, 4) << codec_name(codec);
    EXPECT_EQ(narrow.columns, 32) << codec_name(codec);
  }
}

TEST(LinearWords, EveryBlockScaleDecodesInEveryPlace) {
  for (int code = 0; code < 0x7f; ++code) {
    for (int place = 0; place < 4; ++place) {
      uint32_t word = 0x5a5a5a5au & ~(0xffu << (8 * place));
      word |= uint32_t{pack_nvfp4_scale(static_cast<uint8_t>(code))} << (8 * place);
      const uint32_t pair = decode_nvfp4_scales(word, place / 2);
      ASSERT_EQ(half_of(pair, place % 2), std::ldexp(e4m3_to_float(static_cast<uint8_t>(code)), 7));
    }
  }
}

TEST(LinearPack, DamagedCodesAreRefused) {
  TestMatrix matrix(Codec::fp8, 4, 64, 6);
  matrix.row(2)[7] = std::byte{0xff};
  const LinearCudaPlan plan = plan_for(matrix, KernelFamily::sm70);
  EXPECT_THROW(pack_linear(matrix.view(), plan, false, "test"), Error);
}

}  // namespace
}  // namespace lockstep
