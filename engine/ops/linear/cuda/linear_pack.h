// Brings a stored matrix into the layout of its route: once, at load. Every code moves, none
// changes; unpack_linear is the inverse, and `verify` compares it with the source bit for bit.
//
// Layouts of codes (16 bytes a lane, column order within a lane as linear_words.h says):
//   sm70  [rows / 32][columns / vector][lane]: lane L holds row 8 ((L mod 16) / 4) + L mod 4
//         + 4 (L >= 16) of the tile, `vector` consecutive columns
//   sm80  [rows / 16][columns / block][h 0..1][lane]: lane L holds row L / 4 + 8 h; its columns are
//         lane_column(route, L mod 4, i), i = 0..vector-1, of the block
// Scales: nvfp4 sm70 [rows / 32][columns / 64][lane][4 groups]; sm80 [rows / 16][columns / 128]
// [lane][row L / 4: groups 2t, 2t + 1; row L / 4 + 8: the same]. fp8_block float [rows / 128]
// [columns / 128]. int4 [columns / group][rows] of float scale and 32-bit zero point.
// bf16 on sm70 becomes binary16: a row is scaled by the power of two that brings its largest
// magnitude to [2^14, 2^15), and row_scale takes that out again; exact for values of at least
// 2^-31 of the row's largest, others are rounded to a multiple of 2^-38 of it at most.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "engine/model/weight_matrix.h"
#include "engine/ops/linear/cuda/linear_plan_cuda.h"

namespace lockstep {

// Column within its block of value i (0..vector-1) that lane quarter t (0..3) holds, sm80. For int4
// a product of 16 columns takes four from each lane, so that it never crosses a group.
constexpr int lane_column(const LinearRoute& route, int t, int i) {
  if (route.codec == Codec::int4) return 16 * (i / 4) + 4 * t + i % 4;
  return t * route.vector_codes + i;
}

// Row of a 32-row tile that a lane of the sm70 kernels holds.
constexpr int sm70_lane_row(int lane) {
  return 8 * (lane % 16 / 4) + lane % 4 + 4 * (lane / 16);
}

// Throws Error that names `what` for codes that the kernels cannot hold (NaN codes, negative block
// scales). The result has plan.weight_bytes bytes.
std::vector<std::byte> pack_linear(const WeightMatrix& matrix, const LinearCudaPlan& plan,
                                   bool verify, std::string_view what);

// Row `row` as decode_row gives it without row_scale, out of packed bytes: columns [0, n_cols).
void unpack_row(const std::vector<std::byte>& packed, const LinearCudaPlan& plan, int64_t row,
                float* out);

}  // namespace lockstep
