// A progress bar on stderr, for people only: it writes nothing unless the output is a terminal.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace lockstep {

// "0 B", "1023 B", "1.5 KiB", "12.0 GiB".
std::string human_bytes(double n_bytes);
// "0:07", "12:34", "1:02:03".
std::string human_duration(double seconds);

struct ProgressState {
  std::string label;
  std::string unit;  // "B" is shown in KiB, MiB and so on
  uint64_t done = 0;
  uint64_t total = 0;  // 0: not known, so neither bar nor remaining time
  double elapsed_s = 0.0;
};

// One line of at most `width` columns: label, bar, share, amount, rate, remaining time.
std::string progress_line(const ProgressState& state, int width);

class Progress {
 public:
  Progress(std::string label, uint64_t total, std::string unit, int fd = STDERR_FILENO);
  ~Progress();  // as finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Any thread may call; draws at most ten times a second.
  void advance(uint64_t n = 1);
  // Draws the last state and ends the line. Further calls do nothing.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void draw();

  const std::string label_;
  const std::string unit_;
  const uint64_t total_;
  const int fd_;
  const bool active_;
  const Clock::time_point start_;
  std::atomic<uint64_t> done_{0};
  std::atomic<int64_t> next_draw_ms_{0};  // since start
  std::mutex mutex_;
  bool finished_ = false;
};

}  // namespace lockstep
