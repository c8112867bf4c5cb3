#include "engine/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "engine/base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep {
namespace {

// About 20 us: longer than the gap between two regions of a decode step.
constexpr int kSpins = 4000;

inline void cpu_relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Waits until `value` is no longer `old`: spins first if allowed, then sleeps on a futex.
void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old, bool spin) {
  if (spin) {
    for (int i = 0; i < kSpins; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      cpu_relax();
    }
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

// One share of a region for each thread. A thread runs its own share first and then those that
// nobody has begun: the caller never waits for a worker that the scheduler keeps off its core, only
// for one that is at work. `claimed` holds the last region in which the share was taken; as every
// region ends with all shares taken, a late worker that still has an old region in mind finds
// nothing to take.
struct alignas(64) ShareClaim {
  std::atomic<uint32_t> claimed{0};
};

struct ThreadPool::State {
  int n_threads = 1;
  bool spin = false;
  std::atomic<uint32_t> generation{0};  // number of the current region
  std::atomic<uint32_t> pending{0};     // shares of it that are not done
  std::atomic<bool> stop{false};
  std::vector<ShareClaim> claims;  // [n_threads]
  // Of the current region: stable from its start until all its shares are done, so that only the
  // holder of a share may read them.
  int64_t n = 0;
  int64_t chunk = 0;
  const RangeBody* body = nullptr;
  std::vector<std::thread> workers;

  explicit State(int threads) : n_threads(threads), claims(static_cast<size_t>(threads)) {}

  void run_share(uint32_t region, int index) {
    uint32_t before = region - 1;
    std::atomic<uint32_t>& claimed = claims[static_cast<size_t>(index)].claimed;
    if (!claimed.compare_exchange_strong(before, region, std::memory_order_acq_rel)) return;
    const int64_t begin = std::min(n, chunk * index);
    const int64_t end = std::min(n, begin + chunk);
    if (begin < end) (*body)(begin, end);
    if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
  }

  void run_shares(uint32_t region, int own) {
    for (int i = 0; i < n_threads; ++i) run_share(region, (own + i) % n_threads);
  }

  void work(int index) {
    uint32_t seen = 0;
    while (true) {
      wait_while_equal(generation, seen, spin);
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      run_shares(seen, index);
    }
  }
};

ThreadPool::ThreadPool(int n_threads, bool spin) {
  LOCKSTEP_CHECK(n_threads >= 1);
  state_ = std::make_unique<State>(n_threads);
  state_->spin = spin;
  for (int i = 1; i < n_threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_relaxed);
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::n_threads() const {
  return state_->n_threads;
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, const RangeBody& body) {
  LOCKSTEP_CHECK(grain >= 1);
  if (n <= 0) return;
  State& state = *state_;
  const int64_t n_grains = (n + grain - 1) / grain;
  if (state.n_threads == 1 || n_grains == 1) {
    body(0, n);
    return;
  }
  state.n = n;
  state.chunk = (n_grains + state.n_threads - 1) / state.n_threads * grain;
  state.body = &body;
  state.pending.store(static_cast<uint32_t>(state.n_threads), std::memory_order_relaxed);
  const uint32_t region = state.generation.fetch_add(1, std::memory_order_release) + 1;
  state.generation.notify_all();
  state.run_shares(region, 0);
  for (uint32_t left = state.pending.load(std::memory_order_acquire); left != 0;
       left = state.pending.load(std::memory_order_acquire)) {
    wait_while_equal(state.pending, left, state.spin);
  }
}

}  // namespace lockstep
