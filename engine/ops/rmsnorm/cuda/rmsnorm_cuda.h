// Op         ops/rmsnorm on a card, alone or after ops/residual_add in one pass.
// Math       as ops/rmsnorm. With y0: x = round(x + y0) first; with y0 and y1:
//            x = round(x + round(y0 + y1)), the order of ranks; x is stored, then normalised: the
//            bits of sum_partials, residual_add and rmsnorm one after the other.
//            Rows as wide as a head (64, 128, 256): sums in the 16 lanes of the CPU op, so the
//            CPU's bits. Other rows: a thread adds the squares of eight values in order by FMA,
//            above kOneVectorNormWidth of a second eight after the first; threads are added in
//            pairs 16, 8, 4, 2, 1 apart, warps the same way. Nothing but the width enters.
// Shapes     x, out [n_rows, width] with row strides; y0, y1 [n_rows, width] dense.
// Dtypes     bfloat16; weight float32. Rows start at multiples of 16 bytes.
// Aliasing   out may be x when there is no y0.
// Order      rows wider than a head start early (early_launch.cuh): `weight` is read at once.
// Oracle     rmsnorm_oracle; bound: tolerance::rmsnorm_cuda_relative.
#pragma once

#include <cstdint>

#include "engine/device/device.h"

namespace lockstep {

inline constexpr int kOneVectorNormWidth = 4096;

struct RmsNormCudaArgs {
  uint16_t* x = nullptr;  // written only with y0
  int64_t x_stride = 0;
  const uint16_t* y0 = nullptr;
  const uint16_t* y1 = nullptr;
  const float* weight = nullptr;  // [width]
  uint16_t* out = nullptr;
  int64_t out_stride = 0;
  int64_t n_rows = 0;
  int width = 0;
  float eps = 0.0f;
  float weight_offset = 0.0f;
};

void rmsnorm_cuda(const RmsNormCudaArgs& args, Stream& stream);

}  // namespace lockstep
