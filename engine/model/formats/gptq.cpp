// GPTQ, K-major: qweight [K/8, N] with nibble j of word r = column 8r + j of W, qzeros [K/G, N/8]
// with zero points stored minus 1, scales [K/G, N]. Words are transposed at load: a word is eight
// columns of one row, which is what kernels read.
#include "engine/base/error.h"
#include "engine/model/formats/formats.h"
#include "engine/model/formats/parts.h"

namespace lockstep::formats {
namespace {

constexpr int64_t kPerWord = 8;
constexpr int64_t kTile = 16;  // words; keeps both sides of the transposition in cache lines

bool matches(const MatrixParts& parts) {
  if (!has_dtype(parts, "qweight", DType::I32) || !has_dtype(parts, "qzeros", DType::I32) ||
      !has_wide_float(parts, "scales")) {
    return false;
  }
  return has(parts, "g_idx") || dim(parts, "qweight", 1) == dim(parts, "scales", 1);
}

std::vector<uint32_t> transposed_words(const TensorInfo& part) {
  const int64_t n_in = part.shape[0];
  const int64_t n_out = part.shape[1];
  std::vector<uint32_t> words(static_cast<size_t>(n_in * n_out));
  for (int64_t r0 = 0; r0 < n_in; r0 += kTile) {
    for (int64_t n = 0; n < n_out; ++n) {
      for (int64_t r = r0; r < std::min(r0 + kTile, n_in); ++r) {
        words[static_cast<size_t>(n * n_in + r)] = word(part, r * n_out + n);
      }
    }
  }
  return words;
}

void check_shapes(const std::string& base, const TensorInfo& weight, const TensorInfo& zeros,
                  const TensorInfo& scales) {
  const bool fits = scales.shape[1] == weight.shape[1] && zeros.shape[0] == scales.shape[0] &&
                    zeros.shape[1] * kPerWord == weight.shape[1];
  if (!fits) {
    fail("matrix {}: qweight {}, qzeros {} and scales {} are no 4-bit GPTQ matrix", base,
         weight.shape_text(), zeros.shape_text(), scales.shape_text());
  }
}

StoredMatrix open(const std::string& base, const MatrixParts& parts) {
  const TensorInfo& weight = matrix_part(base, parts, "qweight");
  const TensorInfo& zeros = matrix_part(base, parts, "qzeros");
  const TensorInfo& scales = matrix_part(base, parts, "scales");
  check_shapes(base, weight, zeros, scales);
  const int64_t n_rows = weight.shape[1];
  const int64_t n_cols = weight.shape[0] * kPerWord;
  const int64_t n_groups = scales.shape[0];
  const int64_t group = group_columns(base, n_cols, n_groups);
  if (has(parts, "g_idx")) check_group_order(base, *parts.at("g_idx"), n_cols, group);

  const std::vector<float> stored_scales = finite_scales(base, parts, "scales");
  std::vector<float> row_scales(stored_scales.size());
  std::vector<uint8_t> row_zeros(stored_scales.size());
  for (int64_t g = 0; g < n_groups; ++g) {
    for (int64_t n = 0; n < n_rows; ++n) {
      const auto at = static_cast<size_t>(n * n_groups + g);
      row_scales[at] = stored_scales[static_cast<size_t>(g * n_rows + n)];
      const uint32_t packed = word(zeros, g * zeros.shape[1] + n / kPerWord);
      row_zeros[at] = static_cast<uint8_t>(nibble(packed, n % kPerWord) + 1);
    }
  }
  StoredMatrix stored;
  stored.format = "gptq";
  stored.view.codec = Codec::int4;
  stored.view.n_rows = n_rows;
  stored.view.n_cols = n_cols;
  stored.view.row_bytes = codec_row_bytes(Codec::int4, n_cols);
  stored.view.codes = reinterpret_cast<const std::byte*>(adopt(stored, transposed_words(weight)));
  stored.view.group = group;
  stored.view.block_scales = adopt(stored, std::move(row_scales));
  stored.view.block_scale_stride = n_groups;
  stored.view.zero_points = adopt(stored, std::move(row_zeros));
  return stored;
}

PartCut cut(const MatrixParts& parts, const std::string& suffix, MatrixAxis axis) {
  const int64_t n_groups = dim(parts, "scales", 0);
  const int64_t n_cols = dim(parts, "qweight", 0) * kPerWord;
  const int64_t group = n_groups > 0 ? std::max<int64_t>(1, n_cols / n_groups) : 1;
  const bool rows = axis == MatrixAxis::rows;
  if (suffix == "qweight") return rows ? PartCut{1, 1} : PartCut{0, kPerWord};
  if (suffix == "qzeros") return rows ? PartCut{1, kPerWord} : PartCut{0, group};
  if (suffix == "scales") return rows ? PartCut{1, 1} : PartCut{0, group};
  if (suffix == "g_idx" && !rows) return {0, 1};
  return {};
}

}  // namespace

WeightFormat gptq() {
  return {"gptq", matches, open, cut};
}

}  // namespace lockstep::formats
