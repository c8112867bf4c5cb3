// Checks and conversions that several weight formats share.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "engine/model/weight_formats.h"

namespace lockstep::formats {

bool has(const MatrixParts& parts, const std::string& suffix);
bool has_dtype(const MatrixParts& parts, const std::string& suffix, DType dtype);
bool has_wide_float(const MatrixParts& parts, const std::string& suffix);  // F32, BF16 or F16
// Dimension `axis` of the part, -1 when the part or the dimension is missing.
int64_t dim(const MatrixParts& parts, const std::string& suffix, size_t axis);

// The part, with two non-zero dimensions. Throws Error that names it otherwise.
const TensorInfo& matrix_part(const std::string& base, const MatrixParts& parts,
                              const std::string& suffix);

// Points the view at the stored bytes, or at an aligned copy where the file aligns them badly.
void set_codes(StoredMatrix& stored, const TensorInfo& part, Codec codec, int64_t n_rows,
               int64_t n_cols);

// Gives the view an array that lives as long as the matrix.
template <typename T>
T* adopt(StoredMatrix& stored, std::vector<T> values) {
  auto owner = std::make_shared<std::vector<T>>(std::move(values));
  T* data = owner->data();
  stored.keep_alive.push_back(std::move(owner));
  return data;
}

// One positive finite value of shape [] or [1].
float scalar_scale(const std::string& base, const MatrixParts& parts, const std::string& suffix);

// Every value as float32; throws Error for one that is not finite.
std::vector<float> finite_scales(const std::string& base, const MatrixParts& parts,
                                 const std::string& suffix);

void set_uniform_row_scale(StoredMatrix& stored, float scale);

// E4M3 bytes without NaN codes, and without negative ones where they are scales.
void check_e4m3(const std::string& base, const std::string& suffix, const TensorInfo& part,
                bool is_scale);

// 32-bit word `index` of an I32 part, wherever the file aligns it.
inline uint32_t word(const TensorInfo& part, int64_t index) {
  uint32_t value = 0;
  std::memcpy(&value, part.bytes.data() + index * 4, sizeof value);
  return value;
}
inline uint32_t nibble(uint32_t value, int64_t index) {
  return (value >> (4 * index)) & 0xfu;
}

// Columns per group of an int4 matrix with this many groups; throws Error unless a multiple of 16.
int64_t group_columns(const std::string& base, int64_t n_cols, int64_t n_groups);

// Refuses a group index that is not k / group (plus a constant, in a rank's part): activation order
// mixes the columns of all ranks.
void check_group_order(const std::string& base, const TensorInfo& g_idx, int64_t n_cols,
                       int64_t group);

}  // namespace lockstep::formats
