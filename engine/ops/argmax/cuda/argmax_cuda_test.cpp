#include "engine/ops/argmax/cuda/argmax_cuda.h"

#include "engine/ops/argmax/argmax.h"
#include "engine/ops/common/cuda/row_test_util.h"
#include "engine/ops/common/tolerance.h"

namespace lockstep {
namespace {

using namespace op_test;

struct Found {
  std::vector<int32_t> best;
  std::vector<double> log_sum_exp;
};

// Columns with a stride that leaves poison, a NaN, behind each.
Found run(const std::vector<std::vector<float>>& columns) {
  const auto n = static_cast<int64_t>(columns.front().size());
  const auto n_columns = static_cast<int>(columns.size());
  const int64_t stride = (n + 3) / 4 * 4 + 4;
  std::vector<float> all(static_cast<size_t>(stride * n_columns), NAN);
  for (int c = 0; c < n_columns; ++c) {
    std::copy(columns[static_cast<size_t>(c)].begin(), columns[static_cast<size_t>(c)].end(),
              all.begin() + c * stride);
  }
  const GuardedBytes logits(all);
  const GuardedBytes workspace(argmax_workspace_bytes(n, n_columns));
  const GuardedBytes best(n_columns * 4);
  const GuardedBytes sums(n_columns * 8);
  argmax_cuda({logits.as<float>(), stride, n, n_columns, workspace.data(), best.as<int32_t>(),
               sums.as<double>()},
              card_stream());
  EXPECT_TRUE(workspace.walls_intact() && best.walls_intact() && sums.walls_intact());
  return {best.values<int32_t>(), sums.values<double>()};
}

void check(const std::vector<std::vector<float>>& columns, const std::string& what) {
  const Found found = run(columns);
  for (size_t c = 0; c < columns.size(); ++c) {
    const std::vector<float>& x = columns[c];
    const auto n = static_cast<int64_t>(x.size());
    EXPECT_EQ(found.best[c], argmax(x.data(), n)) << what << ", column " << c;
    const double want = log_sum_exp(x.data(), n);
    if (std::isnan(want) || std::isinf(want)) {
      EXPECT_TRUE(std::isnan(want) ? std::isnan(found.log_sum_exp[c])
                                   : found.log_sum_exp[c] == want)
          << what << ", column " << c;
    } else {
      // Both are off by the bound at most.
      EXPECT_NEAR(found.log_sum_exp[c], want, 2 * tolerance::log_sum_exp_absolute(n, want))
          << what << ", column " << c;
    }
  }
}

class ArgmaxCuda : public testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_CARD(); }
};

TEST_F(ArgmaxCuda, AgreesWithTheCpuAtEveryBorder) {
  for (const int64_t n : {1, 2, 3, 4, 5, 1023, 1024, 1025, 2047, 2048, 2049, 4097, 248320}) {
    std::vector<std::vector<float>> columns;
    for (uint64_t seed = 0; seed < 3; ++seed) columns.push_back(random_floats(seed, n, 20.0f));
    check(columns, std::to_string(n) + " logits");
    // The largest at the end.
    columns[0].back() = 100.0f;
    check(columns, std::to_string(n) + " logits, the last");
  }
}

TEST_F(ArgmaxCuda, TheLowestIdWinsATie) {
  for (const auto& [first, second] : {std::pair{5, 6}, {5, 1029}, {2047, 2048}, {100, 9000}}) {
    std::vector<float> x = random_floats(1, 10000, 5.0f);
    x[static_cast<size_t>(first)] = x[static_cast<size_t>(second)] = 7.0f;
    check({x}, "tie");
  }
  std::vector<float> zeros(5000, -0.0f);
  zeros[3000] = 0.0f;
  check({zeros, std::vector<float>(5000, -3.0f), std::vector<float>(5000, -INFINITY)}, "all equal");
}

TEST_F(ArgmaxCuda, NanAndInfinity) {
  for (const size_t place : {size_t{0}, size_t{2048}, size_t{4999}}) {
    std::vector<float> x = random_floats(1, 5000, 5.0f);
    std::vector<float> infinite = x;
    x[place] = NAN;
    infinite[place] = INFINITY;
    std::vector<float> dead = infinite;
    dead[place] = -INFINITY;
    check({x, infinite, dead}, "at " + std::to_string(place));
  }
}

}  // namespace
}  // namespace lockstep
