#include "engine/model/weight_formats.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

constexpr int64_t kNvfp4Block = 16;

bool has(const MatrixParts& parts, const std::string& suffix) {
  return parts.count(suffix) != 0;
}

bool has_dtype(const MatrixParts& parts, const std::string& suffix, DType dtype) {
  const auto at = parts.find(suffix);
  return at != parts.end() && at->second->dtype == dtype;
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

// Points the view at the stored bytes, or at an aligned copy where the file aligns them badly.
void set_codes(StoredMatrix& stored, const TensorInfo& part, Codec codec, int64_t n_cols) {
  stored.view.codec = codec;
  stored.view.n_rows = part.shape[0];
  stored.view.n_cols = n_cols;
  stored.view.row_bytes = codec_row_bytes(codec, n_cols);
  const auto alignment = static_cast<uintptr_t>(std::max<int64_t>(1, dtype_bytes(part.dtype)));
  if (reinterpret_cast<uintptr_t>(part.bytes.data()) % alignment == 0) {
    stored.view.codes = part.bytes.data();
    return;
  }
  auto copy = std::make_shared<std::vector<std::byte>>(part.bytes.begin(), part.bytes.end());
  stored.view.codes = copy->data();
  stored.keep_alive.push_back(copy);
}

// A positive finite scalar stored as F32 of shape [] or [1].
float scalar_scale(const std::string& base, const MatrixParts& parts, const std::string& suffix) {
  const TensorInfo& part = *parts.at(suffix);
  if (part.n_elements() != 1 || part.shape.size() > 1 || part.dtype != DType::F32) {
    fail("matrix {}: {} must be one F32 value, is {} {}", base, suffix, dtype_name(part.dtype),
         part.shape_text());
  }
  float value = 0.0f;
  std::memcpy(&value, part.bytes.data(), sizeof value);
  if (!std::isfinite(value) || value <= 0.0f) {
    fail("matrix {}: {} is {}, must be positive and finite", base, suffix, value);
  }
  return value;
}

void set_uniform_row_scale(StoredMatrix& stored, float scale) {
  auto scales =
      std::make_shared<std::vector<float>>(static_cast<size_t>(stored.view.n_rows), scale);
  stored.view.row_scale = scales->data();
  stored.keep_alive.push_back(scales);
}

// E4M3 bytes without NaN codes, and without negative ones where they are scales.
void check_e4m3(const std::string& base, const std::string& suffix, const TensorInfo& part,
                bool is_scale) {
  for (size_t i = 0; i < part.bytes.size(); ++i) {
    const auto code = static_cast<uint8_t>(part.bytes[i]);
    if (e4m3_is_nan(code))
      fail("matrix {}: {} holds NaN code 0x{:02x} at {}", base, suffix, code, i);
    if (is_scale && (code & 0x80u) != 0) {
      fail("matrix {}: {} holds a negative scale (0x{:02x}) at {}", base, suffix, code, i);
    }
  }
}

// --- plain: one tensor of a wide float type ---

bool plain_matches(const MatrixParts& parts) {
  return !has(parts, "weight_scale") &&
         (has_dtype(parts, "weight", DType::BF16) || has_dtype(parts, "weight", DType::F16) ||
          has_dtype(parts, "weight", DType::F32));
}

StoredMatrix plain_open(const std::string& base, const MatrixParts& parts) {
  const TensorInfo& weight = matrix_part(base, parts, "weight");
  StoredMatrix stored;
  stored.format = "plain";
  const Codec codec = weight.dtype == DType::BF16  ? Codec::bf16
                      : weight.dtype == DType::F16 ? Codec::f16
                                                   : Codec::f32;
  set_codes(stored, weight, codec, weight.shape[1]);
  return stored;
}

PartCut plain_cut(const std::string&, const TensorInfo&, MatrixAxis axis) {
  return {axis == MatrixAxis::rows ? 0 : 1, 1};
}

// --- fp8-tensor: E4M3 with one scale; W = code * weight_scale ---

bool fp8_tensor_matches(const MatrixParts& parts) {
  return has_dtype(parts, "weight", DType::F8_E4M3) &&
         has_dtype(parts, "weight_scale", DType::F32) &&
         parts.at("weight_scale")->n_elements() == 1 && parts.at("weight_scale")->shape.size() < 2;
}

StoredMatrix fp8_tensor_open(const std::string& base, const MatrixParts& parts) {
  const TensorInfo& weight = matrix_part(base, parts, "weight");
  check_e4m3(base, "weight", weight, false);
  StoredMatrix stored;
  stored.format = "fp8-tensor";
  set_codes(stored, weight, Codec::fp8, weight.shape[1]);
  set_uniform_row_scale(stored, scalar_scale(base, parts, "weight_scale"));
  return stored;
}

PartCut fp8_tensor_cut(const std::string& suffix, const TensorInfo&, MatrixAxis axis) {
  if (suffix == "weight") return {axis == MatrixAxis::rows ? 0 : 1, 1};
  return {};
}

// --- nvfp4-modelopt: E2M1 pairs, E4M3 scale per 16 columns, one F32 multiplier ---

bool nvfp4_modelopt_matches(const MatrixParts& parts) {
  return has_dtype(parts, "weight", DType::U8) &&
         has_dtype(parts, "weight_scale", DType::F8_E4M3) && has(parts, "weight_scale_2");
}

StoredMatrix nvfp4_modelopt_open(const std::string& base, const MatrixParts& parts) {
  const TensorInfo& weight = matrix_part(base, parts, "weight");
  const TensorInfo& scale = matrix_part(base, parts, "weight_scale");
  const int64_t n_cols = weight.shape[1] * 2;
  if (n_cols % kNvfp4Block != 0 || scale.shape[0] != weight.shape[0] ||
      scale.shape[1] != n_cols / kNvfp4Block) {
    fail("matrix {}: weight {} and weight_scale {} do not fit: one scale per 16 columns is needed",
         base, weight.shape_text(), scale.shape_text());
  }
  check_e4m3(base, "weight_scale", scale, true);
  StoredMatrix stored;
  stored.format = "nvfp4-modelopt";
  set_codes(stored, weight, Codec::nvfp4, n_cols);
  stored.view.block_scales = scale.bytes.data();
  stored.view.block_scale_stride = scale.shape[1];
  set_uniform_row_scale(stored, scalar_scale(base, parts, "weight_scale_2"));
  return stored;
}

PartCut nvfp4_modelopt_cut(const std::string& suffix, const TensorInfo&, MatrixAxis axis) {
  if (suffix == "weight") return axis == MatrixAxis::rows ? PartCut{0, 1} : PartCut{1, 2};
  if (suffix == "weight_scale") {
    return axis == MatrixAxis::rows ? PartCut{0, 1} : PartCut{1, kNvfp4Block};
  }
  return {};
}

}  // namespace

const std::vector<WeightFormat>& weight_formats() {
  static const std::vector<WeightFormat> formats = {
      {"plain", plain_matches, plain_open, plain_cut},
      {"fp8-tensor", fp8_tensor_matches, fp8_tensor_open, fp8_tensor_cut},
      {"nvfp4-modelopt", nvfp4_modelopt_matches, nvfp4_modelopt_open, nvfp4_modelopt_cut},
  };
  return formats;
}

const WeightFormat& find_weight_format(const std::string& base, const MatrixParts& parts) {
  for (const WeightFormat& format : weight_formats()) {
    if (format.matches(parts)) return format;
  }
  std::string found;
  for (const auto& [suffix, part] : parts) {
    found += fmt::format("{}{} {} {}", found.empty() ? "" : ", ", suffix, dtype_name(part->dtype),
                         part->shape_text());
  }
  fail("matrix {}: no known weight format has {}", base, found);
}

const std::vector<std::string>& matrix_suffixes() {
  static const std::vector<std::string> suffixes = {"weight", "weight_scale", "weight_scale_2",
                                                    "input_scale"};
  return suffixes;
}

}  // namespace lockstep
