// E4M3 codes with one scale for the matrix, or one for each row: W[n,k] = code[n,k] * scale[n].
#include "engine/base/error.h"
#include "engine/model/formats/formats.h"
#include "engine/model/formats/parts.h"

namespace lockstep::formats {
namespace {

bool is_fp8(const MatrixParts& parts) {
  return has_dtype(parts, "weight", DType::F8_E4M3) && has_wide_float(parts, "weight_scale") &&
         !has(parts, "weight_scale_inv") && !has(parts, "weight_scale_2");
}

bool tensor_matches(const MatrixParts& parts) {
  return is_fp8(parts) && parts.at("weight_scale")->n_elements() == 1 &&
         parts.at("weight_scale")->shape.size() < 2;
}

StoredMatrix open_codes(const std::string& base, const MatrixParts& parts, const char* format) {
  const TensorInfo& weight = matrix_part(base, parts, "weight");
  check_e4m3(base, "weight", weight, false);
  StoredMatrix stored;
  stored.format = format;
  set_codes(stored, weight, Codec::fp8, weight.shape[0], weight.shape[1]);
  return stored;
}

StoredMatrix tensor_open(const std::string& base, const MatrixParts& parts) {
  StoredMatrix stored = open_codes(base, parts, "fp8-tensor");
  set_uniform_row_scale(stored, scalar_scale(base, parts, "weight_scale"));
  return stored;
}

PartCut tensor_cut(const MatrixParts&, const std::string& suffix, MatrixAxis axis) {
  if (suffix == "weight") return {axis == MatrixAxis::rows ? 0 : 1, 1};
  return {};
}

bool channel_matches(const MatrixParts& parts) {
  return is_fp8(parts) && !tensor_matches(parts);
}

StoredMatrix channel_open(const std::string& base, const MatrixParts& parts) {
  StoredMatrix stored = open_codes(base, parts, "fp8-channel");
  const TensorInfo& scale = *parts.at("weight_scale");
  const bool column = scale.shape.size() == 2 && scale.shape[1] == 1;
  if ((scale.shape.size() != 1 && !column) || scale.shape[0] != stored.view.n_rows) {
    fail("matrix {}: weight has {} rows, weight_scale is {}: one scale a row is needed", base,
         stored.view.n_rows, scale.shape_text());
  }
  stored.view.row_scale = adopt(stored, finite_scales(base, parts, "weight_scale"));
  return stored;
}

PartCut channel_cut(const MatrixParts&, const std::string& suffix, MatrixAxis axis) {
  if (suffix == "weight") return {axis == MatrixAxis::rows ? 0 : 1, 1};
  if (suffix == "weight_scale" && axis == MatrixAxis::rows) return {0, 1};
  return {};
}

}  // namespace

WeightFormat fp8_tensor() {
  return {"fp8-tensor", tensor_matches, tensor_open, tensor_cut};
}
WeightFormat fp8_channel() {
  return {"fp8-channel", channel_matches, channel_open, channel_cut};
}

}  // namespace lockstep::formats
