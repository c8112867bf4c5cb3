// What the host passes to the kernels of linear.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

struct StoredMatrix {
  const uint4* codes;
  const void* scales;  // int4: pairs of float scale and 32-bit zero point
  const float* row_scale;
  void* out;
  int64_t out_stride;
  int n_rows;
  int n_tiles;       // of rows
  int scale_stride;  // fp8_block: floats a row of blocks; int4: padded rows
  bool out_float;
};

struct SkinnyParams : StoredMatrix {
  // Prepared activations, kSkinnyTokens columns each group_bytes; factors_offset into a group are
  // the powers of two that its columns were divided by. Skinny kernels see one group.
  const std::byte* x;
  int64_t group_bytes;
  int factors_offset;
  int n_tokens;     // skinny kernels: 1..8
  int n_blocks;     // of columns
  int group_shift;  // int4: log2 of the vectors (sm70) or blocks (sm80) that a group spans
};

// Matrices of one codec and width in one launch (sm80). Either all multiply the same activations,
// or there are two parts of one matrix each, which multiply their own; blocks take turns.
inline constexpr int kSkinnyMatrices = 8;
inline constexpr int kSkinnyParts = 2;

struct SkinnyGroupParams {
  StoredMatrix matrices[kSkinnyMatrices];
  int n_matrices;  // of a part
  int n_parts;
  const std::byte* x[kSkinnyParts];  // one group of prepared activations each
  int factors_offset;
  int n_tokens;  // 1..8
  int n_tiles;   // of a part; of the first matrix where it is multiplied with the second
  int n_blocks;
  int group_shift;
  int block_shared_bytes;  // most dynamic shared memory of a block
};

__host__ __device__ inline const float* factors_of(const SkinnyParams& p, int group) {
  return reinterpret_cast<const float*>(p.x + group * p.group_bytes + p.factors_offset);
}

// Where a value of an activation row goes.
//   sm70       [columns / 8][8 tokens][8 columns]; tokens that are not there are zeros
//   sm80       [token][block of columns]: lane quarter t has a quarter of the block, in chunks of
//              eight values: position 32 i + 8 t + e holds column t * block / 4 + 8 i + e
//   sm80_int4  the same places hold column 16 (s / 4) + 4 t + s mod 4 with s = 8 i + e
//   sm90       as sm80, but in the order of K of the products: position 16 m + 8 j + 2 t + e holds
//              column t * block / 4 + 4 m + 2 j + e
//   sm90_int4  the same places hold column 16 m + 4 t + 2 j + e
enum class ColumnOrder : int { sm70, sm80, sm80_int4, sm90, sm90_int4 };

// Parts are rows of their own: halves of K.
struct PrepareParams {
  const uint16_t* x[kSkinnyParts];  // bfloat16
  int64_t x_stride;
  std::byte* out[kSkinnyParts];  // groups of eight columns, each with its factors
  int n_parts;
  int64_t group_bytes;
  int64_t factors_offset;
  int n_tokens;
  int n_cols;
  int padded_cols;
  int block_columns;
  ColumnOrder order;
  bool keep_bf16;
};

}  // namespace lockstep::cuda
