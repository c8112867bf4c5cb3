// A load that keeps one card busy until it is stopped.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace lockstep::probe {

class BackgroundLoad {
 public:
  // `burst` enqueues some tens of milliseconds of work and waits for it.
  explicit BackgroundLoad(std::function<void()> burst);
  ~BackgroundLoad();
  BackgroundLoad(const BackgroundLoad&) = delete;
  BackgroundLoad& operator=(const BackgroundLoad&) = delete;

  bool failed() const { return failed_; }

 private:
  std::atomic<bool> stop_{false}, failed_{false};
  std::thread thread_;
};

}  // namespace lockstep::probe
