#include "engine/ops/self_check/self_check.h"

#include "engine/base/error.h"
#include "engine/ops/common/cpu_target.h"
#include "engine/ops/self_check/checks.h"
#include "engine/ops/self_check/exact_match.h"

namespace lockstep {

void require_exact(std::string_view kernel, std::span<const float> got,
                   std::span<const float> expected) {
  LOCKSTEP_CHECK(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    fail(
        "self-check of CPU kernel {} on {}: value {} is {}, not {}; this build or processor must "
        "not "
        "be used",
        kernel, current_cpu_target(), i, got[i], expected[i]);
  }
}

std::vector<float> unwritten(size_t n) {
  return std::vector<float>(n, -54321.5f);
}

void run_ops_self_check(ThreadPool& pool) {
  check_linear(pool);
  check_rowwise_ops(pool);
  check_cache_ops(pool);
  check_recurrent_ops(pool);
  check_vision_ops(pool);
}

}  // namespace lockstep
