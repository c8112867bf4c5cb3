// A fixed set of threads that split index ranges. Which thread computes an index never changes a
// result: every kernel's arithmetic for an index depends on that index alone. Ranges are cut by n,
// grain and the number of threads; a range that its thread has not begun is done by one that is
// free, so a busy machine costs the share of a core and no waits for the scheduler.
#pragma once

#include <cstdint>
#include <memory>

namespace lockstep {

// A callable (begin, end) that outlives the call it is passed to: regions are too short and too
// many for a std::function, which allocates.
class RangeBody {
 public:
  template <class Body>
  RangeBody(const Body& body)  // NOLINT(google-explicit-constructor): lambdas convert
      : object_(&body), call_([](const void* object, int64_t begin, int64_t end) {
          (*static_cast<const Body*>(object))(begin, end);
        }) {}

  void operator()(int64_t begin, int64_t end) const { call_(object_, begin, end); }

 private:
  const void* object_;
  void (*call_)(const void* object, int64_t begin, int64_t end);
};

class ThreadPool {
 public:
  // `n_threads` counts the caller, so 1 starts none. `spin` makes idle workers spin for a short
  // while before they sleep: right only while every thread of every rank has a core of its own.
  explicit ThreadPool(int n_threads, bool spin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const;

  // Calls body(begin, end) on disjoint ranges that cover [0, n); returns when all are done. Ranges
  // are multiples of `grain` (1 or more) except the last. `body` must not throw and must not call
  // the pool.
  void parallel_for(int64_t n, int64_t grain, const RangeBody& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
