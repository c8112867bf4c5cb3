// E2M1 pairs (low nibble = even column) with an E4M3 scale for every 16 columns and one global
// scale, in the two serialisations of ModelOpt (a multiplier) and compressed-tensors (a divisor).
#include <cmath>

#include "engine/base/error.h"
#include "engine/model/formats/formats.h"
#include "engine/model/formats/parts.h"

namespace lockstep::formats {
namespace {

constexpr int64_t kBlock = 16;

struct Names {
  const char* format;
  const char* codes;
  const char* global;
};
constexpr Names kModelOpt = {"nvfp4-modelopt", "weight", "weight_scale_2"};
constexpr Names kCompressed = {"nvfp4-ct", "weight_packed", "weight_global_scale"};

bool matches(const MatrixParts& parts, const Names& names) {
  return has_dtype(parts, names.codes, DType::U8) &&
         has_dtype(parts, "weight_scale", DType::F8_E4M3) && has(parts, names.global);
}

StoredMatrix open(const std::string& base, const MatrixParts& parts, const Names& names) {
  const TensorInfo& codes = matrix_part(base, parts, names.codes);
  const TensorInfo& scale = matrix_part(base, parts, "weight_scale");
  if (codes.shape[1] % (kBlock / 2) != 0 || scale.shape[0] != codes.shape[0] ||
      scale.shape[1] != codes.shape[1] / (kBlock / 2)) {
    fail("matrix {}: {} {} and weight_scale {} do not fit: one scale per 16 columns is needed",
         base, names.codes, codes.shape_text(), scale.shape_text());
  }
  check_e4m3(base, "weight_scale", scale, true);
  StoredMatrix stored;
  stored.format = names.format;
  set_codes(stored, codes, Codec::nvfp4, codes.shape[0], codes.shape[1] * 2);
  stored.view.block_scales = scale.bytes.data();
  stored.view.block_scale_stride = scale.shape[1];
  return stored;
}

PartCut cut(const std::string& suffix, MatrixAxis axis, const Names& names) {
  if (suffix == names.codes) return axis == MatrixAxis::rows ? PartCut{0, 1} : PartCut{1, 2};
  if (suffix == "weight_scale") {
    return axis == MatrixAxis::rows ? PartCut{0, 1} : PartCut{1, kBlock};
  }
  return {};
}

bool modelopt_matches(const MatrixParts& parts) {
  return matches(parts, kModelOpt);
}

StoredMatrix modelopt_open(const std::string& base, const MatrixParts& parts) {
  StoredMatrix stored = open(base, parts, kModelOpt);
  set_uniform_row_scale(stored, scalar_scale(base, parts, kModelOpt.global));
  return stored;
}

PartCut modelopt_cut(const MatrixParts&, const std::string& suffix, MatrixAxis axis) {
  return cut(suffix, axis, kModelOpt);
}

bool ct_matches(const MatrixParts& parts) {
  return matches(parts, kCompressed);
}

StoredMatrix ct_open(const std::string& base, const MatrixParts& parts) {
  StoredMatrix stored = open(base, parts, kCompressed);
  const float divisor = scalar_scale(base, parts, kCompressed.global);
  // The kernels multiply: one rounding of the reciprocal, the same for every rank and backend.
  const float multiplier = 1.0f / divisor;
  if (!std::isfinite(multiplier) || multiplier == 0.0f) {
    fail("matrix {}: weight_global_scale {} has no finite reciprocal", base, divisor);
  }
  set_uniform_row_scale(stored, multiplier);
  return stored;
}

PartCut ct_cut(const MatrixParts&, const std::string& suffix, MatrixAxis axis) {
  return cut(suffix, axis, kCompressed);
}

}  // namespace

WeightFormat nvfp4_modelopt() {
  return {"nvfp4-modelopt", modelopt_matches, modelopt_open, modelopt_cut};
}
WeightFormat nvfp4_ct() {
  return {"nvfp4-ct", ct_matches, ct_open, ct_cut};
}

}  // namespace lockstep::formats
