// What the tests of linear on a card share: packed matrices there, runs between walls, the oracle.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/base/philox.h"
#include "engine/ops/common/cuda/device_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/linear/cuda/linear_cuda.h"
#include "engine/ops/linear/cuda/linear_pack.h"
#include "engine/ops/linear/linear.h"
#include "engine/ops/linear/linear_test_matrix.h"

namespace lockstep::linear_test {

using op_test::Card;
using op_test::GuardedBytes;

inline constexpr int64_t kXPadding = 5;
inline constexpr int64_t kXPaddingOfVectors = 8;  // rows that can be read 16 bytes at a time
inline constexpr int64_t kOutPadding = 7;

// A packed matrix on the card.
struct Loaded {
  Loaded(const WeightMatrix& stored, KernelFamily family)
      : matrix(stored),
        plan(plan_linear_cuda(stored.codec, stored.n_rows, stored.n_cols, stored.group, family,
                              Card::instance().device->facts().block_shared_bytes, "test")),
        weight(pack_linear(stored, plan, false, "test")) {}

  const WeightMatrix& matrix;
  LinearCudaPlan plan;
  GuardedBytes weight;
};

// Codes of -4 ... 4 where a value is a code of its own; other codecs keep theirs.
inline void put_small_integers(TestMatrix& matrix, PhiloxStream& random) {
  const Codec codec = matrix.view().codec;
  for (int64_t n = 0; n < matrix.view().n_rows; ++n) {
    for (int64_t k = 0; k < matrix.view().n_cols; ++k) {
      const float value = static_cast<float>(random.next_below(9)) - 4.0f;
      const uint16_t half = codec == Codec::f16 ? float_to_f16(value) : float_to_bf16(value);
      if (codec == Codec::fp8 || codec == Codec::fp8_block) {
        matrix.row(n)[k] = std::byte{float_to_e4m3(value)};
      } else if (codec == Codec::f16 || codec == Codec::bf16) {
        std::memcpy(matrix.row(n) + 2 * k, &half, 2);
      }
    }
  }
}

inline std::vector<uint16_t> random_bf16(int64_t n_tokens, int64_t n_cols, uint64_t seed) {
  PhiloxStream random(seed, 2);
  std::vector<uint16_t> x(static_cast<size_t>(n_tokens * n_cols));
  for (uint16_t& value : x) value = float_to_bf16(2.0f * random.next_uniform() - 1.0f);
  return x;
}

// Runs x (dense, [n_tokens, n_cols]) through the kernel in padded rows; checks what must not be
// written. Returns dense float outputs.
inline std::vector<float> run(const Loaded& loaded, const std::vector<uint16_t>& x,
                              int64_t n_tokens, CudaOutput output = CudaOutput::fp32,
                              LinearPass pass = LinearPass::decode,
                              TileKernel tiles = TileKernel::of_card,
                              int tile_shape = kTileShapeOfCard, int64_t x_padding = kXPadding) {
  const int64_t n_cols = loaded.plan.n_cols;
  const int64_t n_rows = loaded.plan.n_rows;
  const int64_t x_stride = n_cols + x_padding;
  const int64_t out_stride = n_rows + kOutPadding;
  std::vector<uint16_t> padded(static_cast<size_t>(n_tokens * x_stride), 0xffff);
  for (int64_t t = 0; t < n_tokens; ++t) {
    std::copy_n(x.begin() + t * n_cols, n_cols, padded.begin() + t * x_stride);
  }
  const GuardedBytes x_card(padded);
  const GuardedBytes prepared(linear_prepared_bytes(loaded.plan, n_tokens));
  const int64_t element = output == CudaOutput::fp32 ? 4 : 2;
  const GuardedBytes out(n_tokens * out_stride * element);
  linear_cuda({loaded.plan, loaded.weight.data(), x_card.as<uint16_t>(), x_stride, prepared.data(),
               out.data(), out_stride, n_tokens, output,
               Card::instance().device->facts().n_multiprocessors, pass, tiles, tile_shape},
              *Card::instance().stream);
  Card::instance().stream->synchronize();
  EXPECT_TRUE(out.walls_intact());
  EXPECT_TRUE(prepared.walls_intact());
  std::vector<float> dense;
  std::vector<float> all;
  if (output == CudaOutput::fp32) {
    all = out.values<float>();
  } else {
    for (const uint16_t bits : out.values<uint16_t>()) all.push_back(bf16_to_float(bits));
  }
  for (int64_t t = 0; t < n_tokens; ++t) {
    const auto row = all.begin() + t * out_stride;
    dense.insert(dense.end(), row, row + n_rows);
    for (int64_t n = n_rows; n < out_stride; ++n) {
      EXPECT_TRUE(std::isnan(row[n])) << "wrote beyond row " << t;
    }
  }
  return dense;
}

inline std::vector<float> floats_of(const std::vector<uint16_t>& x) {
  std::vector<float> out;
  for (const uint16_t bits : x) out.push_back(bf16_to_float(bits));
  return out;
}

struct Oracle {
  std::vector<double> value;
  std::vector<double> condition;

  Oracle(const WeightMatrix& matrix, const std::vector<uint16_t>& x, int64_t n_tokens) {
    const std::vector<float> wide = floats_of(x);
    value.resize(static_cast<size_t>(n_tokens * matrix.n_rows));
    condition.resize(value.size());
    linear_oracle({matrix, wide.data(), matrix.n_cols, nullptr, 0, n_tokens, Rounding::none},
                  value.data(), condition.data());
  }
};

inline void expect_within_bound(const Loaded& loaded, const std::vector<uint16_t>& x,
                                int64_t n_tokens, CudaOutput output,
                                LinearPass pass = LinearPass::decode,
                                TileKernel tiles = TileKernel::of_card) {
  const std::vector<float> out = run(loaded, x, n_tokens, output, pass, tiles);
  const Oracle oracle(loaded.matrix, x, n_tokens);
  const Rounding rounding = output == CudaOutput::bf16 ? Rounding::bf16 : Rounding::none;
  for (size_t i = 0; i < out.size(); ++i) {
    const double bound = tolerance::linear_cuda_bound(loaded.plan.padded_cols, oracle.value[i],
                                                      oracle.condition[i], rounding);
    ASSERT_LE(std::fabs(out[i] - oracle.value[i]), bound)
        << codec_name(loaded.matrix.codec) << " " << family_name(loaded.plan.route->family) << " ["
        << loaded.plan.n_rows << ", " << loaded.plan.n_cols << "] T " << n_tokens << " at " << i;
  }
}

inline std::vector<float> rows_of(const std::vector<float>& out, int64_t n_rows, int64_t t) {
  return {out.begin() + t * n_rows, out.begin() + (t + 1) * n_rows};
}

}  // namespace lockstep::linear_test
