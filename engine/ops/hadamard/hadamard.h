// Op         Normalised 256-point Walsh-Hadamard transform of head vectors, in place.
// Math       y = H x / sqrt(width), H in natural (Sylvester) order; width a power of two, 16 to
// 1024.
//            Stages run with stride 1, 2, 4, ...: each is (a+b, a-b) in float32; the factor is
//            applied last. H is its own inverse, so scores of rotated q and k equal those of plain
//            q and k.
// Shapes     x [n_rows, width] with row stride.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

void hadamard(float* x, int64_t row_stride, int64_t n_rows, int width, Rounding rounding,
              ThreadPool& pool);

}  // namespace lockstep
