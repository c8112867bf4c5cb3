#include "engine/ops/self_check/self_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/ops/common/cpu_target.h"
#include "engine/ops/self_check/exact_match.h"

namespace lockstep {
namespace {

TEST(SelfCheck, PassesOnEveryTargetAndAnyNumberOfThreads) {
  for (const std::string& target : available_cpu_targets()) {
    select_cpu_target(target);
    for (const int n_threads : {1, 2}) {
      ThreadPool pool(n_threads);
      EXPECT_NO_THROW(run_ops_self_check(pool)) << target << " with " << n_threads << " threads";
    }
  }
  select_cpu_target("auto");
}

TEST(SelfCheck, NamesTheKernelAndTheValueThatIsWrong) {
  const std::vector<float> right = {1.0f, 2.0f, 3.0f};
  EXPECT_NO_THROW(require_exact("linear bf16", right, right));
  std::vector<float> wrong = right;
  wrong[1] = std::nextafter(2.0f, 3.0f);
  try {
    require_exact("linear bf16", wrong, right);
    FAIL() << "one wrong bit went through";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("linear bf16"), std::string::npos) << message;
    EXPECT_NE(message.find(current_cpu_target()), std::string::npos) << message;
    EXPECT_NE(message.find("value 1"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(SelfCheck, NanAndUnwrittenValuesMatchNothing) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(require_exact("argmax", std::vector<float>{nan}, std::vector<float>{nan}), Error);
  EXPECT_THROW(require_exact("argmax", unwritten(1), std::vector<float>{0.0f}), Error);
}

}  // namespace
}  // namespace lockstep
