// Op         ops/layernorm on a card.
// Math       as ops/layernorm. Sums: a thread adds eight values in order (the squares by FMA), a
//            second eight after the first above 4096 values; threads are added in pairs 16, 8, 4,
//            2, 1 apart, warps the same way. Nothing but the width enters.
// Shapes     x, out [n_rows, width] dense; weight, bias [width].
// Dtypes     bfloat16; weight, bias float32. Rows start at multiples of 16 bytes.
// Aliasing   out may be x.
// Oracle     layernorm_oracle, whose bound counts more steps of the sums than this op makes from
//            width 512 on; below: tolerance::kLayerNormCudaSteps.
#pragma once

#include <cstdint>

#include "engine/device/device.h"

namespace lockstep {

struct LayerNormCudaArgs {
  const uint16_t* x = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  uint16_t* out = nullptr;
  int64_t n_rows = 0;
  int width = 0;
  float eps = 0.0f;
};

void layernorm_cuda(const LayerNormCudaArgs& args, Stream& stream);

}  // namespace lockstep
