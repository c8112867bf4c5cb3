#include "engine/rank/http/outside.h"

#include <sys/random.h>

#include <chrono>

#include "engine/base/error.h"

namespace lockstep {

int64_t unix_time_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

uint64_t random_u64() {
  uint64_t value = 0;
  LOCKSTEP_CHECK(::getrandom(&value, sizeof(value), 0) == sizeof(value));
  return value;
}

}  // namespace lockstep
