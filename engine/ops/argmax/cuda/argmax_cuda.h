// Op         ops/argmax on a card: argmax and log_sum_exp of columns.
// Math       best: as the CPU op, bit for bit (lowest id on ties, -1 with a NaN). log_sum_exp:
//            float64; slices of 2048 by their own maximum, eight values of a thread in order, then
//            pairs of threads and of warps; slices the same way.
// Shapes     logits [n_columns, n] with a stride that is a multiple of 4, starting at multiples of
//            16 bytes; best [n_columns]; log_sum_exp [n_columns] or null.
// Dtypes     float32; best int32; log_sum_exp float64.
// Effects    best, log_sum_exp and `workspace` (argmax_workspace_bytes).
// Bound      of log_sum_exp: tolerance::log_sum_exp_absolute.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/argmax/cuda/slice_summary.h"

namespace lockstep {

struct ArgmaxCudaArgs {
  const float* logits = nullptr;
  int64_t stride = 0;
  int64_t n = 0;
  int n_columns = 0;
  std::byte* workspace = nullptr;
  int32_t* best = nullptr;
  double* log_sum_exp = nullptr;
};

void argmax_cuda(const ArgmaxCudaArgs& args, Stream& stream);

}  // namespace lockstep
