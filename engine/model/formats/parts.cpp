#include "engine/model/formats/parts.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"

namespace lockstep::formats {

bool has(const MatrixParts& parts, const std::string& suffix) {
  return parts.count(suffix) != 0;
}

bool has_dtype(const MatrixParts& parts, const std::string& suffix, DType dtype) {
  const auto at = parts.find(suffix);
  return at != parts.end() && at->second->dtype == dtype;
}

bool has_wide_float(const MatrixParts& parts, const std::string& suffix) {
  return has_dtype(parts, suffix, DType::F32) || has_dtype(parts, suffix, DType::BF16) ||
         has_dtype(parts, suffix, DType::F16);
}

int64_t dim(const MatrixParts& parts, const std::string& suffix, size_t axis) {
  const auto at = parts.find(suffix);
  return at == parts.end() || axis >= at->second->shape.size() ? -1 : at->second->shape[axis];
}

const TensorInfo& matrix_part(const std::string& base, const MatrixParts& parts,
                              const std::string& suffix) {
  const TensorInfo& part = *parts.at(suffix);
  if (part.shape.size() != 2 || part.shape[0] < 1 || part.shape[1] < 1) {
    fail("matrix {}: {} has shape {}, expected two non-zero dimensions", base, suffix,
         part.shape_text());
  }
  return part;
}

void set_codes(StoredMatrix& stored, const TensorInfo& part, Codec codec, int64_t n_rows,
               int64_t n_cols) {
  stored.view.codec = codec;
  stored.view.n_rows = n_rows;
  stored.view.n_cols = n_cols;
  stored.view.row_bytes = codec_row_bytes(codec, n_cols);
  const auto alignment = static_cast<uintptr_t>(std::max<int64_t>(1, dtype_bytes(part.dtype)));
  if (reinterpret_cast<uintptr_t>(part.bytes.data()) % alignment == 0) {
    stored.view.codes = part.bytes.data();
  } else {
    stored.view.codes = adopt(stored, std::vector<std::byte>(part.bytes.begin(), part.bytes.end()));
  }
}

std::vector<float> finite_scales(const std::string& base, const MatrixParts& parts,
                                 const std::string& suffix) {
  std::vector<float> scales = to_float_vector(*parts.at(suffix));
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!std::isfinite(scales[i])) {
      fail("matrix {}: {} holds {} at {}", base, suffix, scales[i], i);
    }
  }
  return scales;
}

float scalar_scale(const std::string& base, const MatrixParts& parts, const std::string& suffix) {
  const TensorInfo& part = *parts.at(suffix);
  if (part.n_elements() != 1 || part.shape.size() > 1 || !has_wide_float(parts, suffix)) {
    fail("matrix {}: {} must be one float value, is {} {}", base, suffix, dtype_name(part.dtype),
         part.shape_text());
  }
  const float value = to_float_vector(part)[0];
  if (!std::isfinite(value) || value <= 0.0f) {
    fail("matrix {}: {} is {}, must be positive and finite", base, suffix, value);
  }
  return value;
}

void set_uniform_row_scale(StoredMatrix& stored, float scale) {
  stored.view.row_scale =
      adopt(stored, std::vector<float>(static_cast<size_t>(stored.view.n_rows), scale));
}

void check_e4m3(const std::string& base, const std::string& suffix, const TensorInfo& part,
                bool is_scale) {
  constexpr uint64_t kLow7 = 0x7f7f7f7f7f7f7f7full;
  constexpr uint64_t kOnes = 0x0101010101010101ull;
  constexpr uint64_t kHigh = 0x8080808080808080ull;
  const auto bytes = part.bytes;
  size_t i = 0;
  // Eight codes at a time while all are good: low bits 0x7f plus one carry into the high bit.
  for (; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    uint64_t codes = 0;
    std::memcpy(&codes, bytes.data() + i, sizeof codes);
    if ((((codes & kLow7) + kOnes) & kHigh) != 0 || (is_scale && (codes & kHigh) != 0)) break;
  }
  for (; i < bytes.size(); ++i) {
    const auto code = static_cast<uint8_t>(bytes[i]);
    if (e4m3_is_nan(code)) {
      fail("matrix {}: {} holds NaN code 0x{:02x} at {}", base, suffix, code, i);
    }
    if (is_scale && (code & 0x80u) != 0) {
      fail("matrix {}: {} holds a negative scale (0x{:02x}) at {}", base, suffix, code, i);
    }
  }
}

int64_t group_columns(const std::string& base, int64_t n_cols, int64_t n_groups) {
  constexpr int64_t kGranule = 16;
  if (n_groups < 1 || n_cols % n_groups != 0 || (n_cols / n_groups) % kGranule != 0) {
    fail("matrix {}: {} columns in {} scale groups: a group must be a multiple of 16 columns", base,
         n_cols, n_groups);
  }
  return n_cols / n_groups;
}

void check_group_order(const std::string& base, const TensorInfo& g_idx, int64_t n_cols,
                       int64_t group) {
  if (g_idx.dtype != DType::I32 || g_idx.n_elements() != n_cols) {
    fail("matrix {}: its group index is {} {}, expected I32 [{}]", base, dtype_name(g_idx.dtype),
         g_idx.shape_text(), n_cols);
  }
  const uint32_t first = word(g_idx, 0);
  for (int64_t k = 0; k < n_cols; ++k) {
    if (word(g_idx, k) - first != static_cast<uint32_t>(k / group)) {
      fail(
          "matrix {}: columns are in activation order (group of column {} is {}): export the "
          "checkpoint with desc_act=false",
          base, k, word(g_idx, k));
    }
  }
}

}  // namespace lockstep::formats
