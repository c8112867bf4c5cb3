// Op         ops/hadamard on a card.
// Math       as the CPU op, bit for bit, with Rounding::bf16.
// Shapes     x [n_rows, width] with row stride, in place; width 64, 128 or 256.
// Dtypes     bfloat16.
#pragma once

#include <cstdint>

#include "engine/device/device.h"

namespace lockstep {

void hadamard_cuda(uint16_t* x, int64_t row_stride, int64_t n_rows, int width, Stream& stream);

// float(1 / sqrt(width)), as the CPU op has it.
float hadamard_factor(int width);

}  // namespace lockstep
