#include "engine/base/philox.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lockstep {
namespace {

// The known-answer vectors of Random123 for philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  constexpr uint32_t kOnes = 0xffffffffu;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Random123's curand-compatible mapping: the stream is the blocks of consecutive counters.
TEST(Philox, StreamIsTheBlocksInOrder) {
  PhiloxStream stream(0x299f31d0a4093822u, 0x0370734413198a2eu);
  for (uint32_t block = 0; block < 5; ++block) {
    const PhiloxCounter want =
        philox4x32({block, 0, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
    for (const uint32_t number : want) EXPECT_EQ(stream.next_u32(), number);
  }
}

TEST(Philox, SeedsAndStreamsDiffer) {
  std::set<uint32_t> firsts;
  for (uint64_t i = 0; i < 64; ++i) {
    firsts.insert(PhiloxStream(i).next_u32());
    firsts.insert(PhiloxStream(i << 32 | 7).next_u32());
    firsts.insert(PhiloxStream(7, (i + 1) << 32).next_u32());
  }
  // Seed 7 itself occurs twice among the 192.
  EXPECT_EQ(firsts.size(), 191u);
}

TEST(Philox, UniformIsExactAndBelowOne) {
  EXPECT_EQ(uniform_from_bits(0), 0.0f);
  EXPECT_EQ(uniform_from_bits(0xff), 0.0f);
  EXPECT_EQ(uniform_from_bits(0x100), 0x1p-24f);
  EXPECT_EQ(uniform_from_bits(0x80000000u), 0.5f);
  EXPECT_EQ(uniform_from_bits(0xffffffffu), 1.0f - 0x1p-24f);
}

TEST(Philox, UniformFillsItsRangeEvenly) {
  PhiloxStream stream(9);
  std::vector<int> bins(16);
  constexpr int kDraws = 160000;
  for (int i = 0; i < kDraws; ++i) ++bins[static_cast<size_t>(stream.next_uniform() * 16.0f)];
  // Standard deviation 97: five of them.
  for (const int count : bins) EXPECT_NEAR(count, kDraws / 16, 485);
}

TEST(Philox, NextBelowStaysBelowAndReachesAll) {
  PhiloxStream stream(10);
  std::set<uint32_t> seen;
  for (int i = 0; i < 2000; ++i) {
    const uint32_t number = stream.next_below(7);
    EXPECT_LT(number, 7u);
    seen.insert(number);
  }
  EXPECT_EQ(seen.size(), 7u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stream.next_below(1), 0u);
}

}  // namespace
}  // namespace lockstep
