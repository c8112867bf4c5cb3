#include "engine/base/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/table.h"

namespace lockstep {
namespace {

constexpr int64_t kDrawInterval_ms = 100;
constexpr int kMinBar = 10;
constexpr int kMaxBar = 40;
constexpr int kDefaultWidth = 80;

int terminal_width(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefaultWidth;
  return size.ws_col;
}

std::string amount(double value, const std::string& unit) {
  if (unit == "B") return human_bytes(value);
  return fmt::format("{:.0f} {}", value, unit);
}

std::string rate(double per_second, const std::string& unit) {
  if (unit == "B") return human_bytes(per_second) + "/s";
  return fmt::format("{:.{}f} {}/s", per_second, per_second < 10.0 ? 1 : 0, unit);
}

// What stands after the bar.
std::string facts_of(const ProgressState& state) {
  const auto done = static_cast<double>(state.done);
  const auto total = static_cast<double>(state.total);
  const bool known = state.total > 0;
  std::string text;
  if (known) text += fmt::format("{:3.0f}%  ", std::floor(100.0 * std::min(1.0, done / total)));
  text += amount(done, state.unit);
  if (known) text += " of " + amount(total, state.unit);
  if (state.done == 0 || state.elapsed_s <= 0.0) return text;
  text += "  " + rate(done / state.elapsed_s, state.unit);
  if (state.done < state.total) {
    text += "  " + human_duration(state.elapsed_s * (total - done) / done) + " left";
  } else if (known) {
    text += "  in " + human_duration(state.elapsed_s);
  }
  return text;
}

std::string bar_of(const ProgressState& state, int n_cells) {
  const double share =
      static_cast<double>(std::min(state.done, state.total)) / static_cast<double>(state.total);
  const auto filled = static_cast<size_t>(share * n_cells);
  return "[" + std::string(filled, '#') + std::string(static_cast<size_t>(n_cells) - filled, '.') +
         "]";
}

// Cuts ASCII text; the label, which may not be ASCII, is dropped whole by the caller.
std::string cut(const std::string& text, int width) {
  return text.substr(0, static_cast<size_t>(std::max(width, 0)));
}

}  // namespace

std::string human_bytes(double n_bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (n_bytes < 1024.0) return fmt::format("{:.0f} B", std::floor(n_bytes));
  size_t unit = 0;
  // 1023.95 would print as 1024.0.
  while (n_bytes >= 1023.95 && unit + 1 < kUnits.size()) {
    n_bytes /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", n_bytes, kUnits[unit]);
}

std::string human_duration(double seconds) {
  if (!(seconds < 1e9)) return "-:--";
  const auto total = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  const int64_t minutes = total / 60 % 60;
  if (total < 3600) return fmt::format("{}:{:02}", minutes, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, minutes, total % 60);
}

std::string progress_line(const ProgressState& state, int width) {
  const std::string facts = facts_of(state);
  const int facts_width = display_width(facts);
  const int label_width = display_width(state.label);
  if (label_width + 2 + facts_width > width) return cut(facts, width);
  const int room = width - label_width - facts_width - 2 - 4;  // gaps and brackets
  if (state.total == 0 || room < kMinBar) return state.label + "  " + facts;
  return fmt::format("{}  {}  {}", state.label, bar_of(state, std::min(room, kMaxBar)), facts);
}

Progress::Progress(std::string label, uint64_t total, std::string unit, int fd)
    : label_(printable(label)),
      unit_(std::move(unit)),
      total_(total),
      fd_(fd),
      active_(::isatty(fd) != 0),
      start_(Clock::now()) {}

Progress::~Progress() {
  finish();
}

void Progress::advance(uint64_t n) {
  done_.fetch_add(n, std::memory_order_relaxed);
  if (!active_) return;
  const auto now_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_).count();
  int64_t due_ms = next_draw_ms_.load(std::memory_order_relaxed);
  if (now_ms < due_ms) return;
  // One thread wins the right to draw.
  if (next_draw_ms_.compare_exchange_strong(due_ms, now_ms + kDrawInterval_ms)) draw();
}

void Progress::draw() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  ProgressState state{label_, unit_, done_.load(), total_, 0.0};
  state.elapsed_s = std::chrono::duration<double>(Clock::now() - start_).count();
  // One column less than the terminal has: a full line would wrap on some.
  const std::string text = "\r" + progress_line(state, terminal_width(fd_) - 1) + "\x1b[K";
  // A terminal that went away is no reason to stop the work.
  [[maybe_unused]] const ssize_t ignored = ::write(fd_, text.data(), text.size());
}

void Progress::finish() {
  if (!active_) return;
  draw();
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  [[maybe_unused]] const ssize_t ignored = ::write(fd_, "\n", 1);
}

}  // namespace lockstep
