// Op         Multiplies activations by a stored weight matrix.
// Math       out[t,n] = round( (sum_k x[t,k] * decode(W[n,k])) * row_scale[n] )
//            The sum runs in 16 virtual lanes: lane l adds k = l, l+16, l+32, ... in that order
//            with fused multiply-add in float32, starting from 0; the lanes are then added as a
//            tree: l with l+8, then l+4, l+2, l+1. The order depends on K and the codec alone (I3).
// Shapes     x [n_tokens, K] row stride x_stride, out [n_tokens, N] row stride out_stride.
// Dtypes     x float32 (bf16-representable in precision bf16), out float32 rounded as `rounding`
// says. Aliasing   x and out must not overlap. Effects    writes out[t, 0..N) for every t; nothing
// else. Oracle     linear_oracle: float64 from the stored codes; also returns sum |x||w| (condition
// sum). Errors     K must be a multiple of the codec's column granule; other shapes are programmer
// errors.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/thread_pool.h"
#include "engine/model/weight_matrix.h"
#include "engine/ops/common/rounding.h"

namespace lockstep {

struct LinearArgs {
  const WeightMatrix& weight;  // [N, K]
  const float* x;              // [n_tokens, K]
  int64_t x_stride;
  float* out;  // [n_tokens, N]
  int64_t out_stride;
  int64_t n_tokens;
  Rounding rounding;
};

void linear(const LinearArgs& args, ThreadPool& pool);

// Several products that do not read each other's results, in one parallel region: the same bits as
// one after the other, without waiting for all threads in between. Activations that several of them
// share are prepared once.
void linear_group(std::span<const LinearArgs> group, ThreadPool& pool);

// value and condition are [n_tokens, N], dense. The value is not rounded.
void linear_oracle(const LinearArgs& args, double* value, double* condition);

}  // namespace lockstep
