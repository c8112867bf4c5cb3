// The false-alarm rate of the derived bounds, measured: LOCKSTEP_OP_SEEDS seeds (300 without it),
// each through every op on a drawn problem. ci/lanes/seeds.sh runs ten thousand.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "engine/ops/common/cpu_target.h"
#include "engine/ops/seeds/seed_case.h"

namespace lockstep::op_seeds {
namespace {

constexpr int kSeedsInCi = 300;

int n_seeds() {
  const char* text = std::getenv("LOCKSTEP_OP_SEEDS");
  return text == nullptr ? kSeedsInCi : std::atoi(text);
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto* cases : {&rowwise_cases(), &product_cases(), &state_cases()}) {
    all.insert(all.end(), cases->begin(), cases->end());
  }
  return all;
}

TEST(OpSeeds, NoHonestKernelLeavesItsBound) {
  const std::vector<std::string> targets = available_cpu_targets();
  ThreadPool one(1);
  ThreadPool three(3);
  std::map<std::string, double> worst;
  int64_t n_alarms = 0;
  const int n = n_seeds();
  ASSERT_GT(n, 0);
  for (int seed = 1; seed <= n; ++seed) {
    select_cpu_target(targets[static_cast<size_t>(seed) % targets.size()]);
    for (const Case& op : all_cases()) {
      Draw draw(static_cast<uint64_t>(seed));
      const double ratio = op.judge(draw, seed % 3 == 0 ? three : one, false);
      worst[op.op] = std::max(worst[op.op], ratio);
      n_alarms += ratio > 1.0 ? 1 : 0;
      EXPECT_LE(ratio, 1.0) << op.op << " with seed " << seed;
    }
  }
  for (const auto& [op, ratio] : worst) {
    std::printf("%-22s worst error %.3f of its bound\n", op.c_str(), ratio);
    EXPECT_GT(ratio, 0.01) << op << ": a bound a hundred times too wide proves nothing";
  }
  std::printf("%d seeds, %zu ops, %lld false alarms\n", n, worst.size(),
              static_cast<long long>(n_alarms));
}

TEST(OpSeeds, FourBoundsTooFarAreAlwaysSeen) {
  ThreadPool pool(1);
  for (int seed = 1; seed <= 20; ++seed) {
    for (const Case& op : all_cases()) {
      Draw draw(static_cast<uint64_t>(seed));
      EXPECT_GT(op.judge(draw, pool, true), 1.0) << op.op << " with seed " << seed;
    }
  }
}

}  // namespace
}  // namespace lockstep::op_seeds
