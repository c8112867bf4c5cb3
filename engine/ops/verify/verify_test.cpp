#include "engine/ops/verify/verify.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Verify, DraftsStayUpToTheFirstThatWasNotChosen) {
  const int32_t fed[] = {5, 10, 11, 12};
  const int32_t all[] = {10, 11, 12, 13};
  const int32_t two[] = {10, 11, 99, 13};
  const int32_t later[] = {99, 11, 12, 13};
  EXPECT_EQ(verify(fed, all, 4), 4);
  EXPECT_EQ(verify(fed, all, 2), 2);
  EXPECT_EQ(verify(fed, two, 4), 3);
  EXPECT_EQ(verify(fed, later, 4), 1);
  EXPECT_EQ(verify(fed, later, 1), 1);
}

TEST(Verify, NoTokenIsNoDraft) {
  const int32_t fed[] = {5, 0};
  const int32_t none[] = {-1, -1};
  EXPECT_EQ(verify(fed, none, 2), 1);
}

}  // namespace
}  // namespace lockstep
