// How a weight matrix W [n_rows, n_cols] (out, in) lies in memory, whatever codec stores it.
// y = x W^T. A view: the bytes belong to the checkpoint mapping or to the rank's arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

// W[n,k] = decode(code[n,k], scales) * row_scale[n]. decode() is exact in float32 for every codec;
// row_scale is applied once, to the finished sum over k, in float32.
enum class Codec : uint8_t {
  f32,        // float32; row_scale unused
  bf16,       // bfloat16; row_scale unused
  f16,        // binary16; row_scale unused
  fp8,        // E4M3; per-tensor and per-channel scales live in row_scale
  fp8_block,  // E4M3 * block_scale[n/128, k/128] (float32)
  nvfp4,      // E2M1 (low nibble = even k) * E4M3 block_scale[n, k/16]; global scale in row_scale
  int4,  // (q - zero[n, k/G]) * group_scale[n, k/G] (float32), q and zero unsigned, low nibble =
         // even k
};

std::string_view codec_name(Codec codec);

struct WeightMatrix {
  Codec codec = Codec::bf16;
  int64_t n_rows = 0;
  int64_t n_cols = 0;
  const std::byte* codes = nullptr;  // row n starts at codes + n * row_bytes
  int64_t row_bytes = 0;
  // nvfp4: E4M3 bytes [n_rows, n_cols/16]; fp8_block: float [ceil(n_rows/128), ceil(n_cols/128)];
  // int4: float [n_rows, n_cols/group]. Null otherwise.
  const void* block_scales = nullptr;
  int64_t block_scale_stride = 0;        // elements from one scale row to the next
  const uint8_t* zero_points = nullptr;  // int4: [n_rows, n_cols/group], 0 to 16; null means 8
  int64_t group = 0;                     // int4: columns per group, a multiple of 16
  const float* row_scale = nullptr;      // [n_rows] or null (1.0)
};

// Bytes of codes in one row of `n_cols` columns.
int64_t codec_row_bytes(Codec codec, int64_t n_cols);

// Columns must be a multiple of this to be cut or stored: 16 for nvfp4 and int4, 1 otherwise.
int64_t codec_column_granule(Codec codec);

// Reference decoder: row `row`, columns [0, n_cols), float32, row_scale included. Scalar and
// obvious.
void decode_row(const WeightMatrix& matrix, int64_t row, float* out);

}  // namespace lockstep
