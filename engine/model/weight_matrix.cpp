#include "engine/model/weight_matrix.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

template <typename T>
T load(const std::byte* codes, int64_t index) {
  T value;
  std::memcpy(&value, codes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

uint8_t nibble(const std::byte* codes, int64_t k) {
  const auto byte = load<uint8_t>(codes, k / 2);
  return k % 2 == 0 ? byte & 0xfu : byte >> 4;
}

float block_scale(const WeightMatrix& matrix, int64_t scale_row, int64_t scale_column) {
  return static_cast<const float*>(
      matrix.block_scales)[scale_row * matrix.block_scale_stride + scale_column];
}

float decode_nvfp4(const WeightMatrix& matrix, const std::byte* codes, int64_t row, int64_t k) {
  const auto* scales = static_cast<const uint8_t*>(matrix.block_scales);
  const float scale = e4m3_to_float(scales[row * matrix.block_scale_stride + k / 16]);
  return kE2m1Values[nibble(codes, k)] * scale;
}

float decode_int4(const WeightMatrix& matrix, const std::byte* codes, int64_t row, int64_t k) {
  const int64_t group = k / matrix.group;
  const int zero = matrix.zero_points == nullptr
                       ? 8
                       : matrix.zero_points[row * matrix.block_scale_stride + group];
  return static_cast<float>(nibble(codes, k) - zero) * block_scale(matrix, row, group);
}

float decode_one(const WeightMatrix& matrix, int64_t row, int64_t k) {
  const std::byte* codes = matrix.codes + row * matrix.row_bytes;
  switch (matrix.codec) {
    case Codec::f32:
      return load<float>(codes, k);
    case Codec::bf16:
      return bf16_to_float(load<uint16_t>(codes, k));
    case Codec::f16:
      return f16_to_float(load<uint16_t>(codes, k));
    case Codec::fp8:
      return e4m3_to_float(load<uint8_t>(codes, k));
    case Codec::fp8_block:
      return e4m3_to_float(load<uint8_t>(codes, k)) * block_scale(matrix, row / 128, k / 128);
    case Codec::nvfp4:
      return decode_nvfp4(matrix, codes, row, k);
    case Codec::int4:
      return decode_int4(matrix, codes, row, k);
  }
  LOCKSTEP_CHECK(!"codec");
  return 0.0f;
}

}  // namespace

std::string_view codec_name(Codec codec) {
  switch (codec) {
    case Codec::f32:
      return "f32";
    case Codec::bf16:
      return "bf16";
    case Codec::f16:
      return "f16";
    case Codec::fp8:
      return "fp8";
    case Codec::fp8_block:
      return "fp8_block";
    case Codec::nvfp4:
      return "nvfp4";
    case Codec::int4:
      return "int4";
  }
  LOCKSTEP_CHECK(!"codec");
  return {};
}

int64_t codec_row_bytes(Codec codec, int64_t n_cols) {
  LOCKSTEP_CHECK(n_cols >= 0 && n_cols % codec_column_granule(codec) == 0);
  switch (codec) {
    case Codec::f32:
      return n_cols * 4;
    case Codec::bf16:
    case Codec::f16:
      return n_cols * 2;
    case Codec::fp8:
    case Codec::fp8_block:
      return n_cols;
    case Codec::nvfp4:
    case Codec::int4:
      return n_cols / 2;
  }
  LOCKSTEP_CHECK(!"codec");
  return 0;
}

int64_t codec_column_granule(Codec codec) {
  return codec == Codec::nvfp4 || codec == Codec::int4 ? 16 : 1;
}

void decode_row(const WeightMatrix& matrix, int64_t row, float* out) {
  LOCKSTEP_CHECK(row >= 0 && row < matrix.n_rows);
  const float row_scale = matrix.row_scale == nullptr ? 1.0f : matrix.row_scale[row];
  for (int64_t k = 0; k < matrix.n_cols; ++k) out[k] = decode_one(matrix, row, k) * row_scale;
}

}  // namespace lockstep
