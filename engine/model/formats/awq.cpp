// AWQ (GEMM form), K-major: nibble i of word c of qweight [K, N/8] is row 8c + kOrder[i] of W;
// qzeros [K/G, N/8] in the same order, without an offset; scales [K/G, N].
#include "engine/base/error.h"
#include "engine/model/formats/formats.h"
#include "engine/model/formats/parts.h"

namespace lockstep::formats {
namespace {

constexpr int64_t kPerWord = 8;
constexpr int64_t kOrder[kPerWord] = {0, 2, 4, 6, 1, 3, 5, 7};

bool matches(const MatrixParts& parts) {
  return has_dtype(parts, "qweight", DType::I32) && has_dtype(parts, "qzeros", DType::I32) &&
         has_wide_float(parts, "scales") && !has(parts, "g_idx") &&
         dim(parts, "qweight", 1) != dim(parts, "scales", 1);
}

void check_shapes(const std::string& base, const TensorInfo& weight, const TensorInfo& zeros,
                  const TensorInfo& scales) {
  const bool fits = weight.shape[1] * kPerWord == scales.shape[1] &&
                    zeros.shape[1] == weight.shape[1] && zeros.shape[0] == scales.shape[0];
  if (!fits) {
    fail("matrix {}: qweight {}, qzeros {} and scales {} are no 4-bit AWQ matrix", base,
         weight.shape_text(), zeros.shape_text(), scales.shape_text());
  }
}

// Row-major nibbles, low nibble = even column, from the interleaved words.
std::vector<std::byte> row_major_codes(const TensorInfo& weight) {
  const int64_t n_cols = weight.shape[0];
  const int64_t n_words = weight.shape[1];
  const int64_t row_bytes = n_cols / 2;
  std::vector<std::byte> codes(static_cast<size_t>(n_words * kPerWord * row_bytes));
  for (int64_t k = 0; k < n_cols; k += 2) {
    for (int64_t c = 0; c < n_words; ++c) {
      const uint32_t even = word(weight, k * n_words + c);
      const uint32_t odd = word(weight, (k + 1) * n_words + c);
      for (int64_t i = 0; i < kPerWord; ++i) {
        const int64_t n = c * kPerWord + kOrder[i];
        codes[static_cast<size_t>(n * row_bytes + k / 2)] =
            static_cast<std::byte>(nibble(even, i) | (nibble(odd, i) << 4));
      }
    }
  }
  return codes;
}

StoredMatrix open(const std::string& base, const MatrixParts& parts) {
  const TensorInfo& weight = matrix_part(base, parts, "qweight");
  const TensorInfo& zeros = matrix_part(base, parts, "qzeros");
  const TensorInfo& scales = matrix_part(base, parts, "scales");
  check_shapes(base, weight, zeros, scales);
  const int64_t n_rows = scales.shape[1];
  const int64_t n_cols = weight.shape[0];
  const int64_t n_groups = scales.shape[0];
  const int64_t group = group_columns(base, n_cols, n_groups);

  const std::vector<float> stored_scales = finite_scales(base, parts, "scales");
  std::vector<float> row_scales(stored_scales.size());
  std::vector<uint8_t> row_zeros(stored_scales.size());
  for (int64_t g = 0; g < n_groups; ++g) {
    for (int64_t c = 0; c < zeros.shape[1]; ++c) {
      const uint32_t packed = word(zeros, g * zeros.shape[1] + c);
      for (int64_t i = 0; i < kPerWord; ++i) {
        const int64_t n = c * kPerWord + kOrder[i];
        const auto at = static_cast<size_t>(n * n_groups + g);
        row_scales[at] = stored_scales[static_cast<size_t>(g * n_rows + n)];
        row_zeros[at] = static_cast<uint8_t>(nibble(packed, i));
      }
    }
  }
  StoredMatrix stored;
  stored.format = "awq";
  stored.view.codec = Codec::int4;
  stored.view.n_rows = n_rows;
  stored.view.n_cols = n_cols;
  stored.view.row_bytes = codec_row_bytes(Codec::int4, n_cols);
  stored.view.codes = adopt(stored, row_major_codes(weight));
  stored.view.group = group;
  stored.view.block_scales = adopt(stored, std::move(row_scales));
  stored.view.block_scale_stride = n_groups;
  stored.view.zero_points = adopt(stored, std::move(row_zeros));
  return stored;
}

PartCut cut(const MatrixParts& parts, const std::string& suffix, MatrixAxis axis) {
  const int64_t n_groups = dim(parts, "scales", 0);
  const int64_t n_cols = dim(parts, "qweight", 0);
  const int64_t group = n_groups > 0 ? std::max<int64_t>(1, n_cols / n_groups) : 1;
  const bool rows = axis == MatrixAxis::rows;
  if (suffix == "qweight") return rows ? PartCut{1, kPerWord} : PartCut{0, 1};
  if (suffix == "qzeros") return rows ? PartCut{1, kPerWord} : PartCut{0, group};
  if (suffix == "scales") return rows ? PartCut{1, 1} : PartCut{0, group};
  return {};
}

}  // namespace

WeightFormat awq() {
  return {"awq", matches, open, cut};
}

}  // namespace lockstep::formats
