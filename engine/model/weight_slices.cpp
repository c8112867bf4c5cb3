#include "engine/model/weight_slices.h"

#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kFp8Block = 128;
constexpr int64_t kNvfp4Block = 16;

// Block scales moved by whole scale rows and columns.
const void* advance_scales(const WeightMatrix& m, int64_t scale_row, int64_t scale_col) {
  if (m.block_scales == nullptr) return nullptr;
  const int64_t index = scale_row * m.block_scale_stride + scale_col;
  if (m.codec == Codec::nvfp4) return static_cast<const uint8_t*>(m.block_scales) + index;
  return static_cast<const float*>(m.block_scales) + index;
}

}  // namespace

int64_t row_cut_granule(const WeightMatrix& matrix) {
  return matrix.codec == Codec::fp8_block ? kFp8Block : 1;
}

int64_t column_cut_granule(const WeightMatrix& matrix) {
  switch (matrix.codec) {
    case Codec::fp8_block:
      return kFp8Block;
    case Codec::nvfp4:
      return kNvfp4Block;
    case Codec::int4:
      return matrix.group;
    default:
      return 1;
  }
}

WeightMatrix slice_rows(const WeightMatrix& matrix, int64_t begin, int64_t end) {
  LOCKSTEP_CHECK(0 <= begin && begin < end && end <= matrix.n_rows);
  LOCKSTEP_CHECK(begin % row_cut_granule(matrix) == 0);
  WeightMatrix slice = matrix;
  slice.n_rows = end - begin;
  slice.codes += begin * matrix.row_bytes;
  const int64_t scale_row = matrix.codec == Codec::fp8_block ? begin / kFp8Block : begin;
  slice.block_scales = advance_scales(matrix, scale_row, 0);
  if (matrix.zero_points != nullptr) {
    slice.zero_points += begin * matrix.block_scale_stride;
  }
  if (matrix.row_scale != nullptr) slice.row_scale += begin;
  return slice;
}

WeightMatrix slice_columns(const WeightMatrix& matrix, int64_t begin, int64_t end) {
  LOCKSTEP_CHECK(0 <= begin && begin < end && end <= matrix.n_cols);
  const int64_t scale_group = column_cut_granule(matrix);
  LOCKSTEP_CHECK(begin % scale_group == 0);
  WeightMatrix slice = matrix;
  slice.n_cols = end - begin;
  slice.codes += codec_row_bytes(matrix.codec, begin);
  slice.block_scales = advance_scales(matrix, 0, begin / scale_group);
  if (matrix.zero_points != nullptr) slice.zero_points += begin / scale_group;
  return slice;
}

}  // namespace lockstep
