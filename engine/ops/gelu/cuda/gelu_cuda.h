// Op         ops/gelu on a card. bias_add_cuda applies it on its way.
// Math       as the CPU op, bit for bit, with Rounding::bf16.
// Shapes     x [n], in place, n any number.
// Dtypes     bfloat16, starting at a multiple of 16 bytes.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/gelu/gelu.h"

namespace lockstep {

void gelu_cuda(uint16_t* x, int64_t n, GeluKind kind, Stream& stream);

}  // namespace lockstep
