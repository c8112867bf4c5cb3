#include "validation/ops/process_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace lockstep {

void run_pool(size_t n_tasks, int n_workers, const std::function<void(size_t)>& task) {
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> errors(n_tasks);
  const auto work = [&] {
    for (size_t i = next++; i < n_tasks; i = next++) {
      try {
        task(i);
      } catch (const Error&) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> workers;
  const size_t n = std::min(n_tasks, static_cast<size_t>(std::max(1, n_workers)));
  for (size_t i = 0; i < n; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace lockstep
