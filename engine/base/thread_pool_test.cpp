#include "engine/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
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

// A share that waits for all others to begin can only end when each has a thread of its own.
TEST_P(ThreadPoolTest, ReallyUsesItsThreads) {
  ThreadPool pool(3, spin());
  std::vector<std::thread::id> ids(3);
  std::atomic<int> n_begun{0};
  pool.parallel_for(3, 1, [&](int64_t begin, int64_t) {
    ids[static_cast<size_t>(begin)] = std::this_thread::get_id();
    ++n_begun;
    while (n_begun < 3) std::this_thread::yield();
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

// A worker beside a thread that never lets it run, as on a machine with more work than cores.
class StarvedPool {
 public:
  StarvedPool() {
    std::thread maker([&] {
      const int cpu = ::sched_getcpu();
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(static_cast<size_t>(std::max(0, cpu)), &one);
      // Threads inherit both from the thread that starts them.
      starved_ = cpu >= 0 && ::sched_setaffinity(0, sizeof one, &one) == 0;
      hog_ = std::thread([&] {
        while (!stop_) n_turns_ = n_turns_ + 1;
      });
      const sched_param idle{};
      starved_ = starved_ && ::sched_setscheduler(0, SCHED_IDLE, &idle) == 0;
      pool_ = std::make_unique<ThreadPool>(2, false);
    });
    maker.join();
  }
  ~StarvedPool() {
    stop_ = true;
    hog_.join();
  }
  bool starved() const { return starved_; }
  ThreadPool& pool() { return *pool_; }

 private:
  bool starved_ = false;
  std::atomic<bool> stop_{false};
  volatile int64_t n_turns_ = 0;
  std::thread hog_;
  std::unique_ptr<ThreadPool> pool_;
};

double seconds_of_regions(ThreadPool& pool, int n_regions) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<uint64_t> sum{0};
  for (int i = 0; i < n_regions; ++i) {
    pool.parallel_for(64, 1, [&](int64_t begin, int64_t end) {
      uint64_t value = static_cast<uint64_t>(begin);
      for (int64_t step = 0; step < (end - begin) * 500; ++step) value = value * 3 + 1;
      sum += value;
    });
  }
  EXPECT_NE(sum, 1u);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The caller does the shares of a worker that does not come. Waiting for it would take hundreds of
// times as long as one thread does; a worker that is put off its core in the middle of a share
// still has to be waited for, so the best of a few runs counts.
TEST(ThreadPools, ACallerDoesNotWaitForAStarvedWorker) {
  StarvedPool starved;
  if (!starved.starved()) GTEST_SKIP() << "threads cannot be pinned or made idle here";
  ThreadPool alone(1);
  double best_ratio = 1e9;
  for (int i = 0; i < 8 && best_ratio > 3; ++i) {
    const double serial_s = seconds_of_regions(alone, 40);
    best_ratio = std::min(best_ratio, seconds_of_regions(starved.pool(), 40) / serial_s);
  }
  EXPECT_LT(best_ratio, 10);
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
