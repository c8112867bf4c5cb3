// Op         ops/gated_rmsnorm on a card.
// Math       as ops/gated_rmsnorm; x is multiplied by the reciprocal of its root mean square. The
//            squares of a head are added in 16 lanes of eight neighbours by FMA, the lanes in pairs
//            8, 4, 2, 1 apart: the bits of a head depend on that head alone.
// Shapes     x, z, out [n_tokens, n_heads, kGatedNormWidth] with token strides; weight
//            [kGatedNormWidth].
// Dtypes     bfloat16; weight float32. Strides are multiples of 8, pointers of 16 bytes.
// Aliasing   out may be x.
// Order      starts early (early_launch.cuh); z and weight must be older than the launch right
//            before.
// Oracle     gated_rmsnorm_oracle; bound: tolerance::gated_rmsnorm_relative, then one rounding.
#pragma once

#include <cstdint>

#include "engine/device/device.h"

namespace lockstep {

inline constexpr int kGatedNormWidth = 128;

struct GatedRmsNormCudaArgs {
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  const uint16_t* z = nullptr;
  int64_t z_stride = 0;
  const float* weight = nullptr;
  uint16_t* out = nullptr;
  int64_t out_stride = 0;
  int64_t n_tokens = 0;
  int n_heads = 0;
  float eps = 0.0f;
};

void gated_rmsnorm_cuda(const GatedRmsNormCudaArgs& args, Stream& stream);

}  // namespace lockstep
