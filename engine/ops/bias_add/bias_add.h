// Op         Adds a learned shift to every row.
// Math       x[r,i] = round(x[r,i] + bias[i])
// Shapes     x [n_rows, width] dense, in place; bias [width].
// Dtypes     float32, rounded as `rounding` says. A product with bias rounds once: the product is
// made
//            with Rounding::none, this op rounds.
#pragma once

#include <cstdint>

#include "engine/base/thread_pool.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

void bias_add(float* x, const float* bias, int64_t n_rows, int64_t width, Rounding rounding,
              ThreadPool& pool);

}  // namespace lockstep
