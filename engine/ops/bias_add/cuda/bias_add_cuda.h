// Op         ops/bias_add on a card, alone or with what follows it in the vision tower.
// Math       s = round(x[r,i] + bias[i]), then
//            store:     out[r,i] = s
//            gelu_*:    out[r,i] = round( gelu(s) ), as ops/gelu
//            residual:  out[r,i] = round( out[r,i] + s ), as ops/residual_add
//            The bits of the CPU ops one after the other with Rounding::bf16.
// Shapes     x, out [n_rows, width] dense; bias [width].
// Dtypes     x, bias float32 (a product that is not rounded yet); out bfloat16. Rows start at
//            multiples of 16 bytes.
#pragma once

#include <cstdint>

#include "engine/device/device.h"

namespace lockstep {

enum class AfterBias : uint8_t { store, gelu_exact, gelu_tanh, residual };

struct BiasAddCudaArgs {
  const float* x = nullptr;
  const float* bias = nullptr;
  uint16_t* out = nullptr;
  int64_t n_rows = 0;
  int64_t width = 0;
  AfterBias after = AfterBias::store;
};

void bias_add_cuda(const BiasAddCudaArgs& args, Stream& stream);

}  // namespace lockstep
