#include "engine/base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<bool> {
 protected:
  bool spin() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Waiting, ThreadPoolTest, ::testing::Values(false, true),
                         [](const auto& test) { return test.param ? "spin" : "sleep"; });

TEST_P(ThreadPoolTest, CoversEveryIndexOnce) {
  for (const int n_threads : {1, 2, 3, 5, 8}) {
    ThreadPool pool(n_threads, spin());
    EXPECT_EQ(pool.n_threads(), n_threads);
    for (const int64_t n : {0, 1, 2, 7, 8, 63, 64, 65, 1000}) {
      for (const int64_t grain : {1, 2, 3, 16, 64, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          EXPECT_EQ(begin % grain, 0);
          EXPECT_TRUE(end % grain == 0 || end == n);
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        const auto once = [](const std::atomic<int>& count) { return count == 1; };
        EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), once))
            << n_threads << " threads, n " << n << ", grain " << grain;
      }
    }
  }
}

TEST_P(ThreadPoolTest, CanBeUsedThousandsOfTimes) {
  ThreadPool pool(4, spin());
  std::vector<int64_t> values(16);
  for (int64_t round = 1; round <= 5000; ++round) {
    // Plain writes: a missing happens-before between rounds would be a data race.
    pool.parallel_for(16, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(15 - i)] += i;
    });
    ASSERT_EQ(values[15 - 3], 3 * round);
  }
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(values[static_cast<size_t>(15 - i)], 5000 * i);
}

TEST_P(ThreadPoolTest, ReallyUsesItsThreads) {
  ThreadPool pool(3, spin());
  std::vector<std::thread::id> ids(3);
  pool.parallel_for(3, 1, [&](int64_t begin, int64_t) {
    ids[static_cast<size_t>(begin)] = std::this_thread::get_id();
  });
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), 3u);
  EXPECT_EQ(ids[0], std::this_thread::get_id());
}

TEST_P(ThreadPoolTest, WaitsForItsSlowestThread) {
  ThreadPool pool(4, spin());
  for (int slow = 0; slow < 4; ++slow) {
    std::atomic<int> done{0};
    pool.parallel_for(4, 1, [&](int64_t begin, int64_t) {
      if (begin == slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++done;
    });
    EXPECT_EQ(done, 4);
  }
}

TEST_P(ThreadPoolTest, SurvivesIdleTimesAndRestarts) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3, spin());
    if (i % 2 == 0) continue;  // destroyed without work
    std::atomic<int64_t> sum{0};
    const auto add = [&](int64_t begin, int64_t end) { sum += end - begin; };
    pool.parallel_for(100, 7, add);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.parallel_for(100, 7, add);
    EXPECT_EQ(sum, 200);
  }
}

TEST(ThreadPools, PoolsOfDifferentThreadsDoNotDisturbEachOther) {
  const auto work = [](int64_t* total) {
    ThreadPool pool(3);
    for (int i = 0; i < 500; ++i) {
      std::atomic<int64_t> sum{0};
      pool.parallel_for(10, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
      *total += sum;
    }
  };
  int64_t first = 0;
  int64_t second = 0;
  std::thread other(work, &first);
  work(&second);
  other.join();
  EXPECT_EQ(first, 5000);
  EXPECT_EQ(second, 5000);
}

TEST(ThreadPoolDeathTest, RefusesNonsense) {
  EXPECT_DEATH(ThreadPool(0), "internal error");
  EXPECT_DEATH(ThreadPool(1).parallel_for(4, 0, [](int64_t, int64_t) {}), "internal error");
}

}  // namespace
}  // namespace lockstep
