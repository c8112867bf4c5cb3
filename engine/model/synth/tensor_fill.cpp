#include "engine/model/synth/tensor_fill.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/base/philox.h"

namespace lockstep {
namespace {

constexpr float kSqrt3 = 1.7320508f;  // half width of a uniform distribution in standard deviations

// Weight-like E4M3 codes: random sign and mantissa; each exponent half as likely as the one above.
std::array<uint8_t, 256> weight_codes() {
  std::array<uint8_t, 256> table{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const int below = std::min(4, std::countr_one((byte >> 3) & 0xfu));
    table[byte] = static_cast<uint8_t>((byte & 0x87u) | static_cast<unsigned>(8 - below) << 3);
  }
  return table;
}

// Block scales from 1 to 1.875.
std::array<uint8_t, 256> scale_codes() {
  std::array<uint8_t, 256> table{};
  for (unsigned byte = 0; byte < 256; ++byte)
    table[byte] = static_cast<uint8_t>(0x38u | (byte & 7u));
  return table;
}

// Root mean square of the values of equally likely codes.
double rms_of(const std::array<uint8_t, 256>& codes) {
  double sum = 0.0;
  for (const uint8_t code : codes) {
    const double value = e4m3_to_float(code);
    sum += value * value;
  }
  return std::sqrt(sum / 256.0);
}

double rms_of_e2m1() {
  double sum = 0.0;
  for (const float value : kE2m1Values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum / 16.0);
}

double rms_of_int4() {
  double sum = 0.0;
  for (int code = 0; code < 16; ++code) sum += (code - 8.0) * (code - 8.0);
  return std::sqrt(sum / 16.0);
}

TensorFill codes_fill(DType dtype, const std::array<uint8_t, 256>& table) {
  TensorFill fill;
  fill.kind = TensorFill::Kind::codes;
  fill.dtype = dtype;
  fill.table = table;
  return fill;
}

template <typename T>
TensorFill pattern_fill(DType dtype, std::initializer_list<T> values) {
  TensorFill fill;
  fill.kind = TensorFill::Kind::pattern;
  fill.dtype = dtype;
  size_t at = 0;
  while (at < fill.pattern.size()) {
    for (const T value : values) {
      std::memcpy(fill.pattern.data() + at, &value, sizeof value);
      at += sizeof value;
    }
  }
  return fill;
}

TensorFill raw_fill(DType dtype) {
  TensorFill fill;
  fill.dtype = dtype;
  return fill;
}

// Scales that vary by a quarter around the value that gives `deviation` to codes of this rms.
TensorFill scale_fill(DType dtype, double deviation, double code_rms) {
  const auto center = static_cast<float>(deviation / code_rms);
  return uniform_fill(dtype, center, center / 4);
}

float random_uniform(uint32_t bits) {
  return 2.0f * uniform_from_bits(bits) - 1.0f;
}  // [-1, 1)

void apply_uniform(const TensorFill& fill, std::span<std::byte> bytes) {
  const size_t width = static_cast<size_t>(dtype_bytes(fill.dtype));
  for (size_t at = 0; at < bytes.size(); at += width) {
    if (fill.dtype == DType::F32) {
      uint32_t bits = 0;
      std::memcpy(&bits, bytes.data() + at, sizeof bits);
      const float value = fill.center + fill.spread * random_uniform(bits);
      std::memcpy(bytes.data() + at, &value, sizeof value);
      continue;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    const float value = fill.center + fill.spread * random_uniform(uint32_t{bits} << 16);
    const uint16_t stored = fill.dtype == DType::BF16 ? float_to_bf16(value) : float_to_f16(value);
    std::memcpy(bytes.data() + at, &stored, sizeof stored);
  }
}

void apply_group(const TensorFill& fill, int64_t first, std::span<std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(int32_t)) {
    const auto element = first + static_cast<int64_t>(at / sizeof(int32_t));
    const auto group = static_cast<int32_t>(element / fill.group);
    std::memcpy(bytes.data() + at, &group, sizeof group);
  }
}

}  // namespace

TensorFill uniform_fill(DType dtype, float center, float spread) {
  TensorFill fill;
  fill.kind = TensorFill::Kind::uniform;
  fill.dtype = dtype;
  fill.center = center;
  fill.spread = spread;
  return fill;
}

TensorFill matrix_fill(const StorageFormat& format, const PartSpec& part, int64_t n_rows,
                       int64_t n_cols, float deviation) {
  const std::string& suffix = part.suffix;
  const double fp8_rms = rms_of(weight_codes());
  const double nvfp4_global = deviation / (rms_of_e2m1() * rms_of(scale_codes()));
  if (part.dtype == DType::BF16 && suffix == "weight") {
    return uniform_fill(part.dtype, 0.0f, kSqrt3 * deviation);
  }
  if (part.dtype == DType::F8_E4M3) {
    return codes_fill(part.dtype, suffix == "weight" ? weight_codes() : scale_codes());
  }
  if (suffix == "weight_scale_2") {
    return pattern_fill(part.dtype, {static_cast<float>(nvfp4_global)});
  }
  if (suffix == "weight_global_scale") {
    return pattern_fill(part.dtype, {static_cast<float>(1.0 / nvfp4_global)});
  }
  if (suffix == "weight_scale" && part.shape.empty()) {
    return pattern_fill(part.dtype, {static_cast<float>(deviation / fp8_rms)});
  }
  if (suffix == "weight_scale_inv" || format.name == "fp8-channel") {
    return scale_fill(part.dtype, deviation, fp8_rms);
  }
  if (suffix == "weight_scale" || suffix == "scales") {
    return scale_fill(part.dtype, deviation, rms_of_int4());
  }
  if (suffix == "weight_shape") return pattern_fill(part.dtype, {n_rows, n_cols});
  if (suffix == "qzeros") {
    return pattern_fill(part.dtype, {format.name == "gptq" ? 0x77777777u : 0x88888888u});
  }
  TensorFill fill = raw_fill(part.dtype);
  if (suffix == "g_idx") {
    fill.kind = TensorFill::Kind::group;
    fill.group = format.column_granule;
  }
  return fill;
}

void apply_fill(const TensorFill& fill, int64_t first, std::span<std::byte> bytes) {
  switch (fill.kind) {
    case TensorFill::Kind::uniform:
      apply_uniform(fill, bytes);
      return;
    case TensorFill::Kind::codes:
      for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(fill.table[static_cast<uint8_t>(byte)]);
      return;
    case TensorFill::Kind::raw:
      return;
    case TensorFill::Kind::pattern: {
      const auto start = static_cast<size_t>(first * dtype_bytes(fill.dtype));
      for (size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = fill.pattern[(start + i) % fill.pattern.size()];
      }
      return;
    }
    case TensorFill::Kind::group:
      apply_group(fill, first, bytes);
      return;
  }
  LOCKSTEP_CHECK(!"fill kind");
}

}  // namespace lockstep
