// Op         ops/rope and ops/vision_rope on a card, in two steps: cosines and sines of the columns
//            once a round (every layer turns by the same angles), then the rotation of each layer.
// Math       as the CPU ops, bit for bit, with Rounding::bf16: float64 cosines and sines by the
//            operations of engine/base/math.h.
// Shapes     angles [n_tokens, n_pairs, 2] (cosine, sine). x [n_tokens, n_heads, head_dim] with a
//            token stride; pair i is (x[i], x[i + n_pairs]); n_pairs even.
//            text:   positions [n_tokens][3], inv_freq [n_pairs], axis i mod 3
//            vision: positions [n_tokens][2], inv_freq [n_pairs / 2]; row for the first half of the
//                    pairs, column for the second
// Dtypes     angles float32; x bfloat16 in place (only the rotated values are written). Positions
//            are not above 2^20 in magnitude.
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/ops/rope/rope.h"
#include "engine/ops/vision_rope/vision_rope.h"

namespace lockstep {

void rope_angles_cuda(const RopePosition* positions, const float* inv_freq, int64_t n_tokens,
                      int n_pairs, float* angles, Stream& stream);
void vision_rope_angles_cuda(const GridPosition* positions, const float* inv_freq, int64_t n_tokens,
                             int n_pairs, float* angles, Stream& stream);

struct RopeCudaArgs {
  uint16_t* x = nullptr;
  int64_t token_stride = 0;
  const float* angles = nullptr;
  int64_t n_tokens = 0;
  int n_heads = 0;
  int head_dim = 0;
  int n_pairs = 0;  // rotary_dim / 2
};

void rope_cuda(const RopeCudaArgs& args, Stream& stream);

}  // namespace lockstep
