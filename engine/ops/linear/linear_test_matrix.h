// Weight matrices with seeded codes for tests, surrounded by bytes that must not matter.
#pragma once

#include <cstring>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/base/philox.h"
#include "engine/model/weight_matrix.h"

namespace lockstep {

inline constexpr Codec kAllCodecs[] = {Codec::f32,       Codec::bf16,  Codec::f16, Codec::fp8,
                                       Codec::fp8_block, Codec::nvfp4, Codec::int4};

class TestMatrix {
 public:
  // Values of magnitude about 1 with full mantissas; padding between rows decodes to NaN.
  TestMatrix(Codec codec, int64_t n_rows, int64_t n_cols, uint64_t seed, int64_t group = 16)
      : random_(seed) {
    view_.codec = codec;
    view_.n_rows = n_rows;
    view_.n_cols = n_cols;
    view_.group = group;
    view_.row_bytes = codec_row_bytes(codec, n_cols) + kRowPadding;
    codes_.assign(static_cast<size_t>(n_rows * view_.row_bytes), std::byte{0xff});
    for (int64_t n = 0; n < n_rows; ++n) fill_row(n);
    fill_scales();
    for (int64_t n = 0; n < n_rows; ++n) row_scale_.push_back(0.5f + random_.next_uniform());
    view_.codes = codes_.data();
    if (codec != Codec::f32 && codec != Codec::bf16 && codec != Codec::f16) {
      view_.row_scale = row_scale_.data();
    }
  }
  TestMatrix(const TestMatrix&) = delete;
  TestMatrix& operator=(const TestMatrix&) = delete;

  const WeightMatrix& view() const { return view_; }
  std::byte* row(int64_t n) { return codes_.data() + n * view_.row_bytes; }
  std::vector<float>& row_scale() { return row_scale_; }

 private:
  static constexpr int64_t kRowPadding = 32;

  float signed_uniform() { return 2.0f * random_.next_uniform() - 1.0f; }

  template <typename T>
  void put(int64_t n, int64_t index, T value) {
    std::memcpy(row(n) + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }

  void fill_row(int64_t n) {
    const int64_t n_cols = view_.n_cols;
    switch (view_.codec) {
      case Codec::f32:
        for (int64_t k = 0; k < n_cols; ++k) put(n, k, signed_uniform());
        break;
      case Codec::bf16:
        for (int64_t k = 0; k < n_cols; ++k) put(n, k, float_to_bf16(signed_uniform()));
        break;
      case Codec::f16:
        for (int64_t k = 0; k < n_cols; ++k) put(n, k, float_to_f16(signed_uniform()));
        break;
      case Codec::fp8:
      case Codec::fp8_block:
        for (int64_t k = 0; k < n_cols; ++k) put(n, k, e4m3_code());
        break;
      case Codec::nvfp4:
      case Codec::int4:
        for (int64_t k = 0; k < n_cols / 2; ++k) {
          put(n, k, static_cast<uint8_t>(random_.next_below(256)));
        }
        break;
    }
  }

  uint8_t e4m3_code() {
    const auto code = static_cast<uint8_t>(random_.next_below(256));
    return e4m3_is_nan(code) ? uint8_t{0} : code;
  }

  void fill_scales() {
    const int64_t n_rows = view_.n_rows;
    const int64_t n_cols = view_.n_cols;
    if (view_.codec == Codec::nvfp4) {
      view_.block_scale_stride = n_cols / 16 + 3;
      for (int64_t i = 0; i < n_rows * view_.block_scale_stride; ++i) {
        byte_scales_.push_back(static_cast<uint8_t>(1 + random_.next_below(0x7e)));
      }
      view_.block_scales = byte_scales_.data();
    } else if (view_.codec == Codec::fp8_block) {
      view_.block_scale_stride = (n_cols + 127) / 128 + 3;
      fill_float_scales((n_rows + 127) / 128);
    } else if (view_.codec == Codec::int4) {
      view_.block_scale_stride = n_cols / view_.group + 3;
      fill_float_scales(n_rows);
      for (int64_t i = 0; i < n_rows * view_.block_scale_stride; ++i) {
        zeros_.push_back(static_cast<uint8_t>(random_.next_below(17)));
      }
      view_.zero_points = zeros_.data();
    }
  }

  void fill_float_scales(int64_t scale_rows) {
    for (int64_t i = 0; i < scale_rows * view_.block_scale_stride; ++i) {
      float_scales_.push_back(0.05f + random_.next_uniform());
    }
    view_.block_scales = float_scales_.data();
  }

  PhiloxStream random_;
  WeightMatrix view_;
  std::vector<std::byte> codes_;
  std::vector<uint8_t> byte_scales_;
  std::vector<float> float_scales_;
  std::vector<uint8_t> zeros_;
  std::vector<float> row_scale_;
};

}  // namespace lockstep
