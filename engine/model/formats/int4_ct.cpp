// compressed-tensors "pack-quantized": unsigned nibbles of signed codes plus 8, element k at bits
// 4 * (k % 8) of 32-bit word k / 8 of its row, which is the layout that kernels read. Zero points,
// where there are any, are packed the same way along the rows. W[n,k] = (q - zero) * scale[n, k /
// group].
#include "engine/base/error.h"
#include "engine/model/formats/formats.h"
#include "engine/model/formats/parts.h"

namespace lockstep::formats {
namespace {

constexpr int64_t kPerWord = 8;

bool matches(const MatrixParts& parts) {
  return has_dtype(parts, "weight_packed", DType::I32) && has_wide_float(parts, "weight_scale");
}

// weight_shape tells the shape of the whole matrix, also in a rank's part.
void check_stored_shape(const std::string& base, const TensorInfo& shape,
                        const WeightMatrix& view) {
  int64_t stored[2] = {0, 0};
  if (shape.dtype == DType::I64 && shape.n_elements() == 2) {
    std::memcpy(stored, shape.bytes.data(), sizeof stored);
  }
  const bool fits = stored[0] > 0 && stored[1] > 0 && stored[0] % view.n_rows == 0 &&
                    stored[1] % view.n_cols == 0;
  if (!fits) {
    fail("matrix {}: weight_shape says [{}, {}], weight_packed holds [{}, {}]", base, stored[0],
         stored[1], view.n_rows, view.n_cols);
  }
}

std::vector<uint8_t> zero_points(const std::string& base, const TensorInfo& zeros, int64_t n_rows,
                                 int64_t n_groups) {
  const int64_t n_words = (n_rows + kPerWord - 1) / kPerWord;
  if (zeros.dtype != DType::I32 || zeros.shape != std::vector<int64_t>{n_words, n_groups}) {
    fail("matrix {}: weight_zero_point is {} {}, expected I32 [{}, {}]", base,
         dtype_name(zeros.dtype), zeros.shape_text(), n_words, n_groups);
  }
  std::vector<uint8_t> points(static_cast<size_t>(n_rows * n_groups));
  for (int64_t n = 0; n < n_rows; ++n) {
    for (int64_t g = 0; g < n_groups; ++g) {
      points[static_cast<size_t>(n * n_groups + g)] =
          static_cast<uint8_t>(nibble(word(zeros, n / kPerWord * n_groups + g), n % kPerWord));
    }
  }
  return points;
}

StoredMatrix open(const std::string& base, const MatrixParts& parts) {
  const TensorInfo& packed = matrix_part(base, parts, "weight_packed");
  const TensorInfo& scale = matrix_part(base, parts, "weight_scale");
  const int64_t n_rows = packed.shape[0];
  const int64_t n_cols = packed.shape[1] * kPerWord;
  if (scale.shape[0] != n_rows) {
    fail("matrix {}: weight_packed {} and weight_scale {} do not fit: one row of scales a row",
         base, packed.shape_text(), scale.shape_text());
  }
  const int64_t n_groups = scale.shape[1];
  const int64_t group = group_columns(base, n_cols, n_groups);
  StoredMatrix stored;
  stored.format = "int4-ct";
  set_codes(stored, packed, Codec::int4, n_rows, n_cols);
  stored.view.group = group;
  stored.view.block_scales = adopt(stored, finite_scales(base, parts, "weight_scale"));
  stored.view.block_scale_stride = n_groups;
  if (has(parts, "weight_zero_point")) {
    stored.view.zero_points =
        adopt(stored, zero_points(base, *parts.at("weight_zero_point"), n_rows, n_groups));
  }
  if (has(parts, "weight_shape")) check_stored_shape(base, *parts.at("weight_shape"), stored.view);
  if (has(parts, "weight_g_idx")) {
    check_group_order(base, *parts.at("weight_g_idx"), n_cols, group);
  }
  return stored;
}

PartCut cut(const MatrixParts& parts, const std::string& suffix, MatrixAxis axis) {
  const int64_t n_cols = dim(parts, "weight_packed", 1) * kPerWord;
  const int64_t n_groups = dim(parts, "weight_scale", 1);
  const int64_t group = n_groups > 0 ? std::max<int64_t>(1, n_cols / n_groups) : 1;
  const bool rows = axis == MatrixAxis::rows;
  if (suffix == "weight_packed") return rows ? PartCut{0, 1} : PartCut{1, kPerWord};
  if (suffix == "weight_scale") return rows ? PartCut{0, 1} : PartCut{1, group};
  if (suffix == "weight_zero_point") return rows ? PartCut{0, kPerWord} : PartCut{1, group};
  if (suffix == "weight_g_idx" && !rows) return {0, 1};
  return {};
}

}  // namespace

WeightFormat int4_ct() {
  return {"int4-ct", matches, open, cut};
}

}  // namespace lockstep::formats
