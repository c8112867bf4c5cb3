#include "engine/ops/verify/verify.h"

namespace lockstep {

int32_t verify(const int32_t* fed, const int32_t* chosen, int32_t n_columns) {
  int32_t n_taken = 1;
  while (n_taken < n_columns && fed[n_taken] == chosen[n_taken - 1]) ++n_taken;
  return n_taken;
}

}  // namespace lockstep
