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

struct ThreadPool::State {
  int n_threads = 1;
  bool spin = false;
  std::atomic<uint32_t> generation{0};
  std::atomic<uint32_t> pending{0};
  bool stop = false;
  int64_t n = 0;
  int64_t chunk = 0;
  const std::function<void(int64_t, int64_t)>* body = nullptr;
  std::vector<std::thread> workers;

  void run_share(int index) const {
    const int64_t begin = std::min(n, chunk * index);
    const int64_t end = std::min(n, begin + chunk);
    if (begin < end) (*body)(begin, end);
  }

  void work(int index) {
    uint32_t seen = 0;
    while (true) {
      wait_while_equal(generation, seen, spin);
      seen = generation.load(std::memory_order_acquire);
      if (stop) return;
      run_share(index);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int n_threads, bool spin) : state_(std::make_unique<State>()) {
  LOCKSTEP_CHECK(n_threads >= 1);
  state_->n_threads = n_threads;
  state_->spin = spin;
  for (int i = 1; i < n_threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->generation.fetch_add(1, std::memory_order_release);
  state_->generation.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::n_threads() const {
  return state_->n_threads;
}

void ThreadPool::parallel_for(int64_t n, int64_t grain,
                              const std::function<void(int64_t, int64_t)>& body) {
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
  state.pending.store(static_cast<uint32_t>(state.n_threads - 1), std::memory_order_relaxed);
  state.generation.fetch_add(1, std::memory_order_release);
  state.generation.notify_all();
  state.run_share(0);
  for (uint32_t left = state.pending.load(std::memory_order_acquire); left != 0;
       left = state.pending.load(std::memory_order_acquire)) {
    wait_while_equal(state.pending, left, state.spin);
  }
}

}  // namespace lockstep
