// Op         ops/swiglu on a card.
// Math       as the CPU op, bit for bit, with Rounding::bf16.
// Shapes     gate, up, out [n_tokens, width] with row strides; the two halves of one product have
//            the same stride.
// Dtypes     bfloat16. Rows start at multiples of 16 bytes.
// Aliasing   out may be gate or up.
#pragma once

#include <cstdint>

#include "engine/device/device.h"

namespace lockstep {

struct SwigluCudaArgs {
  const uint16_t* gate = nullptr;
  int64_t gate_stride = 0;
  const uint16_t* up = nullptr;
  int64_t up_stride = 0;
  uint16_t* out = nullptr;
  int64_t out_stride = 0;
  int64_t n_tokens = 0;
  int64_t width = 0;
};

void swiglu_cuda(const SwigluCudaArgs& args, Stream& stream);

}  // namespace lockstep
