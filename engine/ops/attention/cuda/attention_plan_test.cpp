// Which attention kernels are registered and how positions are cut: no card needed.
#include "engine/ops/attention/cuda/attention_plan_cuda.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr AttentionShape kWhole = {24, 4, 256, KvType::int8, 1024};

AttentionShape with(AttentionShape shape, KvType type) {
  shape.type = type;
  return shape;
}

TEST(AttentionRoutes, EveryFamilyTypeAndPathIsThereOnce) {
  std::set<std::tuple<KernelFamily, KvType, AttentionPath>> seen;
  for (const AttentionRoute& route : attention_routes()) {
    EXPECT_TRUE(seen.insert({route.family, route.type, route.path}).second);
  }
  for (const KernelFamily family : {KernelFamily::sm70, KernelFamily::sm80}) {
    for (const KvType type : {KvType::int8, KvType::fp16, KvType::bf16}) {
      for (const AttentionPath path :
           {AttentionPath::decode, AttentionPath::prefill, AttentionPath::simple}) {
        EXPECT_TRUE(seen.contains({family, type, path}));
        EXPECT_EQ(plan_attention_cuda(with(kWhole, type), path, family).route->path, path);
      }
    }
    EXPECT_TRUE(seen.contains({family, KvType::fp32, AttentionPath::simple}));
  }
  for (const KvType type : {KvType::int8, KvType::fp16, KvType::bf16}) {
    EXPECT_TRUE(seen.contains({KernelFamily::sm90, type, AttentionPath::prefill}));
  }
  EXPECT_EQ(seen.size(), 24u);
}

TEST(AttentionRoutes, CardsOf90HaveAFamilyOfTheirOwn) {
  DeviceFacts facts{};
  for (const auto& [arch, family, own] :
       {std::tuple{70, KernelFamily::sm70, KernelFamily::sm70},
        std::tuple{80, KernelFamily::sm80, KernelFamily::sm80},
        std::tuple{89, KernelFamily::sm80, KernelFamily::sm80},
        std::tuple{90, KernelFamily::sm80, KernelFamily::sm90},
        std::tuple{100, KernelFamily::sm80, KernelFamily::sm80}}) {
    facts.arch = arch;
    for (const KvType type : {KvType::int8, KvType::fp16, KvType::bf16}) {
      EXPECT_EQ(attention_family(AttentionPath::prefill, type, facts), own);
      EXPECT_EQ(attention_family(AttentionPath::simple, type, facts), family);
    }
    EXPECT_EQ(attention_family(AttentionPath::decode, KvType::int8, facts), own);
    EXPECT_EQ(attention_family(AttentionPath::decode, KvType::bf16, facts), family);
  }
}

TEST(AttentionRoutes, WhatIsNotRegisteredIsAnError) {
  const auto plan = [](AttentionShape shape, AttentionPath path) {
    return plan_attention_cuda(shape, path, KernelFamily::sm80);
  };
  EXPECT_THROW(plan({24, 4, 128, KvType::int8, 1024}, AttentionPath::decode), Error);
  EXPECT_THROW(plan({28, 4, 256, KvType::int8, 1024}, AttentionPath::decode), Error);
  EXPECT_THROW(plan({25, 4, 256, KvType::int8, 1024}, AttentionPath::prefill), Error);
  EXPECT_THROW(plan(with(kWhole, KvType::fp32), AttentionPath::decode), Error);
  EXPECT_THROW(plan(with(kWhole, KvType::fp32), AttentionPath::prefill), Error);
}

// 99 KB: cards of 8.6 and 8.9; 163 KB: 8.0; 227 KB: 9.0.
TEST(AttentionRoutes, ACardWithTooLittleSharedMemoryIsRefusedAtTheStart) {
  const auto plan = [](KvType type, AttentionPath path, int shared_kib,
                       KernelFamily family = KernelFamily::sm80) {
    return plan_attention_cuda(with(kWhole, type), path, family, {}, shared_kib * 1024);
  };
  for (const KvType type : {KvType::int8, KvType::fp16, KvType::bf16}) {
    EXPECT_THROW(plan(type, AttentionPath::prefill, 99), Error);
    for (const AttentionPath path : {AttentionPath::decode, AttentionPath::prefill}) {
      EXPECT_NO_THROW(plan(type, path, 163));
      EXPECT_NO_THROW(plan(type, path, 48, KernelFamily::sm70));
    }
    EXPECT_NO_THROW(plan(type, AttentionPath::simple, 48));
  }
  EXPECT_NO_THROW(plan(KvType::int8, AttentionPath::decode, 99));
  EXPECT_THROW(plan(KvType::bf16, AttentionPath::decode, 99), Error);
  try {
    plan(KvType::int8, AttentionPath::prefill, 99);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("prefill of a int8 cache"), std::string::npos) << text;
    EXPECT_NE(text.find("this card has 101376"), std::string::npos) << text;
  }
  // Codes in flight beside 128 query rows are 512 bytes too many for a card of 8.0.
  EXPECT_EQ(plan(KvType::int8, AttentionPath::prefill, 163).most_block_rows, 64);
  EXPECT_EQ(plan(KvType::bf16, AttentionPath::prefill, 163).most_block_rows, 128);
  EXPECT_EQ(plan(KvType::int8, AttentionPath::prefill, 227).most_block_rows, 128);
}

TEST(AttentionRoutes, OnlyDecodeNeedsAWorkspace) {
  const AttentionShape shape = {24, 4, 256, KvType::int8, 1025};
  const auto plan =
      plan_attention_cuda(shape, AttentionPath::decode, KernelFamily::sm80, {512, 64, 1});
  EXPECT_EQ(plan.n_segments, 3);
  EXPECT_EQ(plan.partial_bytes, int64_t{24} * 3 * 8 * 258 * 4);
  EXPECT_EQ(plan_attention_cuda(shape, AttentionPath::prefill, KernelFamily::sm80).partial_bytes,
            0);
}

TEST(AttentionSegments, CoverEveryPositionOnceInWholeSteps) {
  for (const AttentionSegments segments :
       {AttentionSegments{}, AttentionSegments{64, 4, 3}, AttentionSegments{1024, 64, 1}}) {
    int position = 0;
    for (int index = 0; index < 400; ++index) {
      const AttentionSegments::Range range = segments.range(index);
      ASSERT_EQ(range.first, position);
      ASSERT_EQ(range.first % kAttentionStep, 0);
      ASSERT_GT(range.end, range.first);
      ASSERT_EQ(segments.index_of(range.first), index);
      ASSERT_EQ(segments.index_of(range.end - 1), index);
      position = range.end;
    }
  }
}

TEST(AttentionSegments, GrowFromLevelToLevel) {
  const AttentionSegments segments = {256, 4, 3};
  EXPECT_EQ(segments.range(3).end, 1024);
  EXPECT_EQ(segments.range(4).end, 1536);
  EXPECT_EQ(segments.range(7).end, 3072);
  EXPECT_EQ(segments.range(8).end, 4096);
  EXPECT_EQ(segments.range(100).end - segments.range(100).first, 1024);
}

}  // namespace
}  // namespace lockstep
