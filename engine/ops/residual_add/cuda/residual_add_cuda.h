// Op         ops/residual_add and sum_partials on a card. rmsnorm_cuda makes both on its way.
// Math       as the CPU op, bit for bit, with Rounding::bf16.
// Shapes     x, y, p0, p1, out [n], n any number.
// Dtypes     bfloat16, starting at multiples of 16 bytes.
// Aliasing   out may be p0 or p1.
#pragma once

#include <cstdint>

#include "engine/device/device.h"

namespace lockstep {

void residual_add_cuda(uint16_t* x, const uint16_t* y, int64_t n, Stream& stream);
void sum_partials_cuda(const uint16_t* p0, const uint16_t* p1, uint16_t* out, int64_t n,
                       Stream& stream);

}  // namespace lockstep
