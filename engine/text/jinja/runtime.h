// What every part of the evaluator shares: the arena, the limits and the current line.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/text/chat_template.h"
#include "engine/text/jinja/value.h"

namespace lockstep::jinja {

class Runtime {
 public:
  explicit Runtime(const TemplateLimits& limits) : limits_(limits) {}

  Arena arena;
  int line = 0;
  int value_depth = 0;  // of the values being compared or printed
  int64_t now_unix_s = 0;
  bool has_now = false;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail("line {}: {}", line, fmt::format(format, std::forward<Args>(args)...));
  }

  // Count work and memory; throw Error once a limit is passed. Bytes read count as work too.
  void charge_steps(int64_t n);
  void charge_bytes_read(size_t n) { charge_steps(static_cast<int64_t>(n / kBytesPerStep)); }
  void charge_memory(size_t n_bytes);

  const TemplateLimits& limits() const { return limits_; }

  Value string(std::string text);
  Value string(std::string_view text) { return string(std::string(text)); }
  // A list that has been filled: charges for its items.
  Value list(List* list);
  Value undefined(std::string complaint);

 private:
  static constexpr size_t kBytesPerStep = 64;

  TemplateLimits limits_;
  int64_t steps_ = 0;
  size_t memory_bytes_ = 0;
};

// One level of recursion over the tree or over values.
class DepthGuard {
 public:
  DepthGuard(Runtime& runtime, int* depth, int max_depth);
  ~DepthGuard() { --*depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int* depth_;
};

}  // namespace lockstep::jinja
