// Integer activations times weights that decode to integers: every partial sum is exact.
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/ops/linear/linear.h"
#include "engine/ops/self_check/checks.h"
#include "engine/ops/self_check/exact_match.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 9;    // leaves a rest after every row tile
constexpr int64_t kCols = 144;  // odd number of lane groups, two fp8 scale blocks
constexpr int64_t kTokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 13};

int pattern(int64_t i, int64_t range) {
  return static_cast<int>((i * 7 + i / range) % (2 * range + 1) - range);
}

struct IntegerMatrix {
  explicit IntegerMatrix(Codec codec) {
    view.codec = codec;
    view.n_rows = kRows;
    view.n_cols = kCols;
    view.row_bytes = codec_row_bytes(codec, kCols);
    codes.resize(static_cast<size_t>(kRows * view.row_bytes));
    for (int64_t i = 0; i < kRows * kCols; ++i) put(i);
    view.codes = codes.data();
    fill_scales();
  }

  void put(int64_t i) {
    const auto value = static_cast<float>(pattern(i, 12));
    switch (view.codec) {
      case Codec::f32:
        std::memcpy(&codes[static_cast<size_t>(i * 4)], &value, 4);
        return;
      case Codec::bf16:
        return put16(i, float_to_bf16(value));
      case Codec::f16:
        return put16(i, float_to_f16(value));
      case Codec::fp8:
      case Codec::fp8_block:
        codes[static_cast<size_t>(i)] = std::byte{float_to_e4m3(value)};
        return;
      case Codec::nvfp4:
      case Codec::int4:
        codes[static_cast<size_t>(i / 2)] |=
            static_cast<std::byte>((i * 5 + i / 16) % 16 << (i % 2 * 4));
        return;
    }
  }
  void put16(int64_t i, uint16_t code) {
    std::memcpy(&codes[static_cast<size_t>(i * 2)], &code, 2);
  }

  // Powers of two up to 4, so that E2M1 halves become integers and scales mixed up are seen.
  void fill_scales() {
    row_scale.resize(kRows);
    for (size_t n = 0; n < kRows; ++n) row_scale[n] = n % 2 == 0 ? 1.0f : 0.5f;
    const int64_t n_blocks = kCols / 16;
    for (int64_t i = 0; i < kRows * n_blocks; ++i) {
      const float scale = i % 3 == 0 ? 4.0f : 2.0f;
      e4m3_scales.push_back(float_to_e4m3(scale));
      float_scales.push_back(scale);
      zeros.push_back(static_cast<uint8_t>(i % 17));
    }
    if (view.codec == Codec::f32 || view.codec == Codec::bf16 || view.codec == Codec::f16) return;
    view.row_scale = row_scale.data();
    if (view.codec == Codec::fp8) return;
    view.block_scale_stride = view.codec == Codec::fp8_block ? 2 : n_blocks;
    view.block_scales = view.codec == Codec::nvfp4 ? static_cast<const void*>(e4m3_scales.data())
                                                   : static_cast<const void*>(float_scales.data());
    view.zero_points = view.codec == Codec::int4 ? zeros.data() : nullptr;
    view.group = 16;
  }

  WeightMatrix view;
  std::vector<std::byte> codes;
  std::vector<uint8_t> e4m3_scales;
  std::vector<float> float_scales;
  std::vector<uint8_t> zeros;
  std::vector<float> row_scale;
};

// In integers: the decoded weights without the row scale are integers below 2^8.
std::vector<float> expected_products(const WeightMatrix& matrix, const std::vector<float>& x,
                                     int64_t n_tokens) {
  WeightMatrix unscaled = matrix;
  unscaled.row_scale = nullptr;
  std::vector<float> row(kCols);
  std::vector<float> out(static_cast<size_t>(n_tokens * kRows));
  for (int64_t n = 0; n < kRows; ++n) {
    decode_row(unscaled, n, row.data());
    const float scale = matrix.row_scale == nullptr ? 1.0f : matrix.row_scale[n];
    for (int64_t t = 0; t < n_tokens; ++t) {
      int64_t sum = 0;
      for (int64_t k = 0; k < kCols; ++k) {
        sum += static_cast<int64_t>(x[static_cast<size_t>(t * kCols + k)]) *
               static_cast<int64_t>(row[static_cast<size_t>(k)]);
      }
      out[static_cast<size_t>(t * kRows + n)] = static_cast<float>(sum) * scale;
    }
  }
  return out;
}

}  // namespace

void check_linear(ThreadPool& pool) {
  std::vector<float> x(13 * kCols);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(pattern(static_cast<int64_t>(i), 9));
  for (const Codec codec : {Codec::f32, Codec::bf16, Codec::f16, Codec::fp8, Codec::fp8_block,
                            Codec::nvfp4, Codec::int4}) {
    const IntegerMatrix matrix(codec);
    const std::vector<float> expected = expected_products(matrix.view, x, 13);
    for (const int64_t n_tokens : kTokens) {
      std::vector<float> out = unwritten(static_cast<size_t>(n_tokens * kRows));
      linear({matrix.view, x.data(), kCols, out.data(), kRows, n_tokens, Rounding::none}, pool);
      require_exact("linear " + std::string(codec_name(codec)), out,
                    std::span(expected).first(out.size()));
    }
  }
}

}  // namespace lockstep
