#include "hardware-probe/kernels/golden.h"

#include "hardware-probe/kernels/workload.h"

namespace lockstep::probe {
namespace {

int matrix_element(uint64_t seed, int warp, int row, int column) {
  int sum = 0;
  for (int step = 0; step < kMatrixSteps; ++step) {
    for (int k = 0; k < 16; ++k) {
      sum +=
          matrix_entry(seed, warp, step, 0, row, k) * matrix_entry(seed, warp, step, 1, k, column);
    }
  }
  return sum;
}

}  // namespace

uint64_t golden_sm_hash(uint64_t seed, bool matrix_units) {
  uint64_t hash = 0;
  for (uint32_t thread = 0; thread < static_cast<uint32_t>(kSmThreads); ++thread) {
    hash += thread_workload(seed, thread);
  }
  if (!matrix_units) return hash;
  for (int warp = 0; warp < kMatrixWarps; ++warp) {
    for (int element = 0; element < 256; ++element) {
      hash += matrix_term(warp, element, matrix_element(seed, warp, element / 16, element % 16));
    }
  }
  return hash;
}

}  // namespace lockstep::probe
