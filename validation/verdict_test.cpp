#include "validation/verdict.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

namespace lockstep {
namespace {

constexpr std::array<Verdict, 5> kInOrder = {Verdict::pass, Verdict::skipped, Verdict::mistrusted,
                                             Verdict::error, Verdict::fail};

TEST(Verdict, MergeIsTheWorseOfEveryPair) {
  for (size_t a = 0; a < kInOrder.size(); ++a) {
    for (size_t b = 0; b < kInOrder.size(); ++b) {
      EXPECT_EQ(merge(kInOrder[a], kInOrder[b]), kInOrder[std::max(a, b)]) << a << ", " << b;
    }
  }
}

TEST(Verdict, MergeIsALattice) {
  for (const Verdict a : kInOrder) {
    EXPECT_EQ(merge(a, a), a);
    EXPECT_EQ(merge(Verdict::pass, a), a);
    EXPECT_EQ(merge(Verdict::fail, a), Verdict::fail);
    for (const Verdict b : kInOrder) {
      EXPECT_EQ(merge(a, b), merge(b, a));
      for (const Verdict c : kInOrder) EXPECT_EQ(merge(merge(a, b), c), merge(a, merge(b, c)));
    }
  }
}

TEST(Verdict, NamesAndExitCodes) {
  const std::array<std::string, 5> names = {"PASS", "SKIPPED", "MISTRUSTED", "ERROR", "FAIL"};
  const std::array<int, 5> codes = {0, 77, 4, 3, 1};
  std::set<int> distinct;
  for (size_t i = 0; i < kInOrder.size(); ++i) {
    EXPECT_EQ(verdict_name(kInOrder[i]), names[i]);
    EXPECT_EQ(verdict_exit_code(kInOrder[i]), codes[i]);
    distinct.insert(codes[i]);
  }
  EXPECT_EQ(distinct.size(), kInOrder.size());
}

}  // namespace
}  // namespace lockstep
