#include "engine/model/convert/encode_fp.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

constexpr float kE4m3Max = 448.0f;
constexpr float kE2m1Max = 6.0f;
constexpr int64_t kFp8Block = 128;
constexpr int64_t kNvfp4Block = 16;

template <typename T>
void put(std::vector<std::byte>& buffer, int64_t index, T value) {
  std::memcpy(buffer.data() + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

float largest(const float* values, int64_t n) {
  float amax = 0.0f;
  for (int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(values[i]));
  return amax;
}

// Calls visit(n, row) with every row of the matrix.
template <typename Visit>
void for_each_row(const MatrixSource& source, const Visit& visit) {
  std::vector<float> row(static_cast<size_t>(source.n_cols));
  for (int64_t n = 0; n < source.n_rows; ++n) {
    source.row(n, row.data());
    visit(n, row.data());
  }
}

float largest(const MatrixSource& source) {
  float amax = 0.0f;
  for_each_row(source, [&](int64_t, const float* row) {
    amax = std::max(amax, largest(row, source.n_cols));
  });
  return amax;
}

// A scale for values up to `amax`; all zeros take any scale.
float scale_for(float amax, float largest_code) {
  const float scale = amax / largest_code;
  return scale > 0.0f && std::isfinite(scale) ? scale : 1.0f;
}

int64_t blocks(int64_t n) {
  return (n + kFp8Block - 1) / kFp8Block;
}

// Block scales and codes with the given global multiplier.
void encode_nvfp4(const MatrixSource& source, float multiplier, std::vector<std::byte>& codes,
                  std::vector<std::byte>& scales) {
  const int64_t n_blocks = source.n_cols / kNvfp4Block;
  for_each_row(source, [&](int64_t n, const float* row) {
    for (int64_t b = 0; b < n_blocks; ++b) {
      const float* block = row + b * kNvfp4Block;
      // The smallest E4M3 step keeps an all-zero or tiny block's scale from becoming zero.
      const float wanted = largest(block, kNvfp4Block) / kE2m1Max / multiplier;
      const uint8_t scale_code = float_to_e4m3(std::max(wanted, 0x1p-9f));
      put(scales, n * n_blocks + b, scale_code);
      const float step = e4m3_to_float(scale_code) * multiplier;
      for (int64_t i = 0; i < kNvfp4Block; i += 2) {
        const uint8_t low = float_to_e2m1(block[i] / step);
        const uint8_t high = float_to_e2m1(block[i + 1] / step);
        put(codes, (n * source.n_cols + b * kNvfp4Block + i) / 2,
            static_cast<uint8_t>(low | (high << 4)));
      }
    }
  });
}

}  // namespace

std::vector<PartSpec> bf16_parts(const StorageFormat&, int64_t n_rows, int64_t n_cols) {
  return {{"weight", DType::BF16, {n_rows, n_cols}}};
}

void encode_bf16(const StorageFormat&, const MatrixSource& source, PartBuffers& out) {
  for_each_row(source, [&](int64_t n, const float* row) {
    for (int64_t k = 0; k < source.n_cols; ++k) {
      put(out["weight"], n * source.n_cols + k, float_to_bf16(row[k]));
    }
  });
}

std::vector<PartSpec> fp8_tensor_parts(const StorageFormat&, int64_t n_rows, int64_t n_cols) {
  return {{"weight", DType::F8_E4M3, {n_rows, n_cols}}, {"weight_scale", DType::F32, {}}};
}

void encode_fp8_tensor(const StorageFormat&, const MatrixSource& source, PartBuffers& out) {
  const float scale = scale_for(largest(source), kE4m3Max);
  std::vector<std::byte>& codes = out["weight"];
  put(out["weight_scale"], 0, scale);
  for_each_row(source, [&](int64_t n, const float* row) {
    for (int64_t k = 0; k < source.n_cols; ++k) {
      put(codes, n * source.n_cols + k, float_to_e4m3(row[k] / scale));
    }
  });
}

std::vector<PartSpec> fp8_channel_parts(const StorageFormat&, int64_t n_rows, int64_t n_cols) {
  return {{"weight", DType::F8_E4M3, {n_rows, n_cols}}, {"weight_scale", DType::F32, {n_rows, 1}}};
}

void encode_fp8_channel(const StorageFormat&, const MatrixSource& source, PartBuffers& out) {
  std::vector<std::byte>& codes = out["weight"];
  std::vector<std::byte>& scales = out["weight_scale"];
  for_each_row(source, [&](int64_t n, const float* row) {
    const float scale = scale_for(largest(row, source.n_cols), kE4m3Max);
    put(scales, n, scale);
    for (int64_t k = 0; k < source.n_cols; ++k) {
      put(codes, n * source.n_cols + k, float_to_e4m3(row[k] / scale));
    }
  });
}

std::vector<PartSpec> fp8_block_parts(const StorageFormat&, int64_t n_rows, int64_t n_cols) {
  return {{"weight", DType::F8_E4M3, {n_rows, n_cols}},
          {"weight_scale_inv", DType::BF16, {blocks(n_rows), blocks(n_cols)}}};
}

void encode_fp8_block(const StorageFormat&, const MatrixSource& source, PartBuffers& out) {
  const int64_t n_block_cols = blocks(source.n_cols);
  std::vector<float> scales(static_cast<size_t>(blocks(source.n_rows) * n_block_cols));
  const auto scale_at = [&](int64_t n, int64_t k) -> float& {
    return scales[static_cast<size_t>(n / kFp8Block * n_block_cols + k / kFp8Block)];
  };
  for_each_row(source, [&](int64_t n, const float* row) {
    for (int64_t k = 0; k < source.n_cols; k += kFp8Block) {
      const int64_t width = std::min(kFp8Block, source.n_cols - k);
      scale_at(n, k) = std::max(scale_at(n, k), largest(row + k, width));
    }
  });
  for (size_t i = 0; i < scales.size(); ++i) {
    scales[i] = round_to_bf16(scale_for(scales[i], kE4m3Max));
    put(out["weight_scale_inv"], static_cast<int64_t>(i), float_to_bf16(scales[i]));
  }
  std::vector<std::byte>& codes = out["weight"];
  for_each_row(source, [&](int64_t n, const float* row) {
    for (int64_t k = 0; k < source.n_cols; ++k) {
      put(codes, n * source.n_cols + k, float_to_e4m3(row[k] / scale_at(n, k)));
    }
  });
}

std::vector<PartSpec> nvfp4_modelopt_parts(const StorageFormat&, int64_t n_rows, int64_t n_cols) {
  return {{"weight", DType::U8, {n_rows, n_cols / 2}},
          {"weight_scale", DType::F8_E4M3, {n_rows, n_cols / kNvfp4Block}},
          {"weight_scale_2", DType::F32, {}}};
}

void encode_nvfp4_modelopt(const StorageFormat&, const MatrixSource& source, PartBuffers& out) {
  const float multiplier = scale_for(largest(source), kE2m1Max * kE4m3Max);
  put(out["weight_scale_2"], 0, multiplier);
  encode_nvfp4(source, multiplier, out["weight"], out["weight_scale"]);
}

std::vector<PartSpec> nvfp4_ct_parts(const StorageFormat&, int64_t n_rows, int64_t n_cols) {
  return {{"weight_packed", DType::U8, {n_rows, n_cols / 2}},
          {"weight_scale", DType::F8_E4M3, {n_rows, n_cols / kNvfp4Block}},
          {"weight_global_scale", DType::F32, {1}}};
}

void encode_nvfp4_ct(const StorageFormat&, const MatrixSource& source, PartBuffers& out) {
  const float divisor = 1.0f / scale_for(largest(source), kE2m1Max * kE4m3Max);
  put(out["weight_global_scale"], 0, divisor);
  encode_nvfp4(source, 1.0f / divisor, out["weight_packed"], out["weight_scale"]);
}

}  // namespace lockstep
