// LOCKSTEP_CHECK for sources that nvcc compiles: it cannot take fmt, which engine/base/error.h
// needs.
#pragma once

namespace lockstep {

// engine/base/error.h
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace lockstep

#define LOCKSTEP_KERNEL_CHECK(condition)                        \
  do {                                                          \
    if (!(condition)) {                                         \
      ::lockstep::check_failed(#condition, __FILE__, __LINE__); \
    }                                                           \
  } while (false)
