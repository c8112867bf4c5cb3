#include "engine/model/convert/encode_int4.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/float_formats.h"

namespace lockstep {
namespace {

constexpr int64_t kPerWord = 8;
constexpr int kZeroPoint = 8;  // of symmetric codes stored unsigned
constexpr int64_t kAwqNibbleOfColumn[kPerWord] = {0, 4, 1, 5, 2, 6, 3, 7};

template <typename T>
void put(std::vector<std::byte>& buffer, int64_t index, T value) {
  std::memcpy(buffer.data() + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

// Adds a nibble to the 32-bit word `index` of a zeroed buffer.
void add_nibble(std::vector<std::byte>& buffer, int64_t index, int64_t at, int code) {
  uint32_t value = 0;
  std::memcpy(&value, buffer.data() + index * 4, sizeof value);
  value |= static_cast<uint32_t>(code) << (4 * at);
  std::memcpy(buffer.data() + index * 4, &value, sizeof value);
}

int quantised(float value, float scale, int zero) {
  const float q = std::nearbyint(value / scale) + static_cast<float>(zero);
  return static_cast<int>(std::clamp(q, 0.0f, 15.0f));
}

float usable(float scale) {
  return scale > 0.0f && std::isfinite(scale) ? scale : 1.0f;
}

float symmetric_scale(const float* group, int64_t n) {
  float amax = 0.0f;
  for (int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(group[i]));
  return amax / 7.5f;
}

struct Asymmetric {
  float scale;
  int zero;
};

Asymmetric asymmetric_scale(const float* group, int64_t n) {
  const float low = std::min(0.0f, *std::min_element(group, group + n));
  const float high = std::max(0.0f, *std::max_element(group, group + n));
  const float scale = usable(f16_to_float(float_to_f16((high - low) / 15.0f)));
  const float zero = std::clamp(std::nearbyint(-low / scale), 0.0f, 15.0f);
  return {scale, static_cast<int>(zero)};
}

// Calls visit(n, g, values) with every group of every row.
template <typename Visit>
void for_each_group(const StorageFormat& format, const MatrixSource& source, const Visit& visit) {
  std::vector<float> row(static_cast<size_t>(source.n_cols));
  for (int64_t n = 0; n < source.n_rows; ++n) {
    source.row(n, row.data());
    for (int64_t g = 0; g < source.n_cols / format.column_granule; ++g) {
      visit(n, g, row.data() + g * format.column_granule);
    }
  }
}

}  // namespace

std::vector<PartSpec> int4_ct_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols) {
  return {{"weight_packed", DType::I32, {n_rows, n_cols / kPerWord}},
          {"weight_scale", DType::BF16, {n_rows, n_cols / format.column_granule}},
          {"weight_shape", DType::I64, {2}}};
}

void encode_int4_ct(const StorageFormat& format, const MatrixSource& source, PartBuffers& out) {
  const int64_t group = format.column_granule;
  const int64_t n_groups = source.n_cols / group;
  std::vector<std::byte>& packed = out["weight_packed"];
  std::vector<std::byte>& scales = out["weight_scale"];
  put(out["weight_shape"], 0, source.n_rows);
  put(out["weight_shape"], 1, source.n_cols);
  for_each_group(format, source, [&](int64_t n, int64_t g, const float* values) {
    const float scale = usable(round_to_bf16(symmetric_scale(values, group)));
    put(scales, n * n_groups + g, float_to_bf16(scale));
    for (int64_t i = 0; i < group; ++i) {
      const int64_t k = g * group + i;
      add_nibble(packed, (n * source.n_cols + k) / kPerWord, k % kPerWord,
                 quantised(values[i], scale, kZeroPoint));
    }
  });
}

std::vector<PartSpec> gptq_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols) {
  const int64_t n_groups = n_cols / format.column_granule;
  return {{"qweight", DType::I32, {n_cols / kPerWord, n_rows}},
          {"qzeros", DType::I32, {n_groups, n_rows / kPerWord}},
          {"scales", DType::F16, {n_groups, n_rows}},
          {"g_idx", DType::I32, {n_cols}}};
}

void encode_gptq(const StorageFormat& format, const MatrixSource& source, PartBuffers& out) {
  const int64_t group = format.column_granule;
  for (int64_t k = 0; k < source.n_cols; ++k) {
    put(out["g_idx"], k, static_cast<int32_t>(k / group));
  }
  for_each_group(format, source, [&](int64_t n, int64_t g, const float* values) {
    const float scale = usable(f16_to_float(float_to_f16(symmetric_scale(values, group))));
    put(out["scales"], g * source.n_rows + n, float_to_f16(scale));
    add_nibble(out["qzeros"], (g * source.n_rows + n) / kPerWord, n % kPerWord, kZeroPoint - 1);
    for (int64_t i = 0; i < group; ++i) {
      const int64_t k = g * group + i;
      add_nibble(out["qweight"], k / kPerWord * source.n_rows + n, k % kPerWord,
                 quantised(values[i], scale, kZeroPoint));
    }
  });
}

std::vector<PartSpec> awq_parts(const StorageFormat& format, int64_t n_rows, int64_t n_cols) {
  const int64_t n_groups = n_cols / format.column_granule;
  return {{"qweight", DType::I32, {n_cols, n_rows / kPerWord}},
          {"qzeros", DType::I32, {n_groups, n_rows / kPerWord}},
          {"scales", DType::F16, {n_groups, n_rows}}};
}

void encode_awq(const StorageFormat& format, const MatrixSource& source, PartBuffers& out) {
  const int64_t group = format.column_granule;
  const int64_t n_words = source.n_rows / kPerWord;
  for_each_group(format, source, [&](int64_t n, int64_t g, const float* values) {
    const Asymmetric chosen = asymmetric_scale(values, group);
    const int64_t at = kAwqNibbleOfColumn[n % kPerWord];
    put(out["scales"], g * source.n_rows + n, float_to_f16(chosen.scale));
    add_nibble(out["qzeros"], g * n_words + n / kPerWord, at, chosen.zero);
    for (int64_t i = 0; i < group; ++i) {
      add_nibble(out["qweight"], (g * group + i) * n_words + n / kPerWord, at,
                 quantised(values[i], chosen.scale, chosen.zero));
    }
  });
}

}  // namespace lockstep
