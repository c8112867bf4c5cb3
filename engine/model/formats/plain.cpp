#include "engine/model/formats/formats.h"
#include "engine/model/formats/parts.h"

namespace lockstep::formats {
namespace {

bool matches(const MatrixParts& parts) {
  return has_wide_float(parts, "weight") && !has(parts, "weight_scale") &&
         !has(parts, "weight_scale_inv");
}

StoredMatrix open(const std::string& base, const MatrixParts& parts) {
  const TensorInfo& weight = matrix_part(base, parts, "weight");
  StoredMatrix stored;
  stored.format = "plain";
  const Codec codec = weight.dtype == DType::BF16  ? Codec::bf16
                      : weight.dtype == DType::F16 ? Codec::f16
                                                   : Codec::f32;
  set_codes(stored, weight, codec, weight.shape[0], weight.shape[1]);
  return stored;
}

PartCut cut(const MatrixParts&, const std::string&, MatrixAxis axis) {
  return {axis == MatrixAxis::rows ? 0 : 1, 1};
}

}  // namespace

WeightFormat plain() {
  return {"plain", matches, open, cut};
}

}  // namespace lockstep::formats
