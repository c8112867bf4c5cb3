// E4M3 codes with one scale for every 128 x 128 block: W = code * weight_scale_inv (a multiplier,
// whatever its name says).
#include "engine/base/error.h"
#include "engine/model/formats/formats.h"
#include "engine/model/formats/parts.h"

namespace lockstep::formats {
namespace {

constexpr int64_t kBlock = 128;

int64_t blocks(int64_t n) {
  return (n + kBlock - 1) / kBlock;
}

bool matches(const MatrixParts& parts) {
  return has_dtype(parts, "weight", DType::F8_E4M3) && has_wide_float(parts, "weight_scale_inv") &&
         !has(parts, "weight_scale");
}

StoredMatrix open(const std::string& base, const MatrixParts& parts) {
  const TensorInfo& weight = matrix_part(base, parts, "weight");
  const TensorInfo& scale = matrix_part(base, parts, "weight_scale_inv");
  if (scale.shape[0] != blocks(weight.shape[0]) || scale.shape[1] != blocks(weight.shape[1])) {
    fail(
        "matrix {}: weight {} and weight_scale_inv {} do not fit: one scale for each block of "
        "128 x 128 is needed",
        base, weight.shape_text(), scale.shape_text());
  }
  check_e4m3(base, "weight", weight, false);
  StoredMatrix stored;
  stored.format = "fp8-block";
  set_codes(stored, weight, Codec::fp8_block, weight.shape[0], weight.shape[1]);
  stored.view.block_scales = adopt(stored, finite_scales(base, parts, "weight_scale_inv"));
  stored.view.block_scale_stride = scale.shape[1];
  return stored;
}

PartCut cut(const MatrixParts&, const std::string& suffix, MatrixAxis axis) {
  const int dimension = axis == MatrixAxis::rows ? 0 : 1;
  if (suffix == "weight") return {dimension, 1};
  if (suffix == "weight_scale_inv") return {dimension, kBlock};
  return {};
}

}  // namespace

WeightFormat fp8_block() {
  return {"fp8-block", matches, open, cut};
}

}  // namespace lockstep::formats
