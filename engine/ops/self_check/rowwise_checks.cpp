// Ops whose functions have exact points: exp(0) = 1; silu(x) = x from 20 on and 0 below -105;
// softplus(x) = x above 20; sigmoid(0) = 1/2; norms of rows of equal magnitude; rotations of unit
// vectors, which read the cosine and the sine themselves.
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/base/math.h"
#include "engine/ops/argmax/argmax.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/gated_rmsnorm/gated_rmsnorm.h"
#include "engine/ops/gdn_gates/gdn_gates.h"
#include "engine/ops/hadamard/hadamard.h"
#include "engine/ops/residual_add/residual_add.h"
#include "engine/ops/rmsnorm/rmsnorm.h"
#include "engine/ops/rope/rope.h"
#include "engine/ops/self_check/checks.h"
#include "engine/ops/self_check/exact_match.h"
#include "engine/ops/swiglu/swiglu.h"

namespace lockstep {
namespace {

constexpr int kWidth = 48;
constexpr int kRows = 3;
constexpr int kValues = kRows * kWidth;

float sign_of(int i) {
  return (i * 5 + i / 7) % 3 == 0 ? -1.0f : 1.0f;
}
float small(int i) {
  return static_cast<float>((i * 7 + i / 5) % 17 - 8);
}

// The three exact branches of silu.
float gate_of(int i) {
  return i % 3 == 0 ? static_cast<float>(20 + i % 40) : i % 3 == 1 ? 0.0f : -200.0f;
}
float silu_of(int i) {
  return i % 3 == 0 ? gate_of(i) : 0.0f;
}

void check_rmsnorm(ThreadPool& pool) {
  std::vector<float> x(kValues);
  std::vector<float> weight(kWidth);
  std::vector<float> expected(kValues);
  for (int i = 0; i < kWidth; ++i) weight[static_cast<size_t>(i)] = small(i);
  for (int i = 0; i < kValues; ++i) {
    // Row r has magnitude 2^r: its root mean square is exactly that.
    x[static_cast<size_t>(i)] = std::ldexp(sign_of(i), i / kWidth);
    expected[static_cast<size_t>(i)] = sign_of(i) * (1.0f + small(i % kWidth));
  }
  std::vector<float> out = unwritten(kValues);
  rmsnorm({x.data(), kWidth, weight.data(), out.data(), kWidth, kRows, kWidth, 0.0f, 1.0f,
           Rounding::none},
          pool);
  require_exact("rmsnorm", out, expected);
}

void check_gated_rmsnorm(ThreadPool& pool) {
  std::vector<float> x(kValues);
  std::vector<float> z(kValues);
  std::vector<float> weight(kWidth);
  std::vector<float> expected(kValues);
  for (int i = 0; i < kWidth; ++i) weight[static_cast<size_t>(i)] = small(i);
  for (int i = 0; i < kValues; ++i) {
    x[static_cast<size_t>(i)] = std::ldexp(sign_of(i), i / kWidth);
    z[static_cast<size_t>(i)] = gate_of(i);
    expected[static_cast<size_t>(i)] = sign_of(i) * small(i % kWidth) * silu_of(i);
  }
  std::vector<float> out = unwritten(kValues);
  gated_rmsnorm(
      {x.data(), z.data(), weight.data(), out.data(), kRows, kWidth, 0.0f, Rounding::none}, pool);
  require_exact("gated_rmsnorm", out, expected);
}

void check_swiglu(ThreadPool& pool) {
  std::vector<float> gate(kValues);
  std::vector<float> up(kValues);
  std::vector<float> expected(kValues);
  for (int i = 0; i < kValues; ++i) {
    gate[static_cast<size_t>(i)] = gate_of(i);
    up[static_cast<size_t>(i)] = small(i);
    expected[static_cast<size_t>(i)] = silu_of(i) * small(i);
  }
  std::vector<float> out = unwritten(kValues);
  swiglu(
      {gate.data(), kWidth, up.data(), kWidth, out.data(), kWidth, kRows, kWidth, Rounding::none},
      pool);
  require_exact("swiglu", out, expected);
}

void check_gdn_gates() {
  constexpr int kHeads = 4;
  const std::vector<float> a = {20.0f, 30.0f, 41.0f, 60.0f};
  const std::vector<float> b = {0.0f, 200.0f, -200.0f, 0.0f};
  const std::vector<float> a_log(kHeads, 0.0f);
  const std::vector<float> dt_bias = {4.0f, -5.0f, 0.0f, 1.0f};
  std::vector<float> log_decay = unwritten(kHeads);
  std::vector<float> beta = unwritten(kHeads);
  gdn_gates(
      {a.data(), b.data(), a_log.data(), dt_bias.data(), log_decay.data(), beta.data(), 1, kHeads});
  require_exact("gdn_gates log_decay", log_decay,
                std::vector<float>{-24.0f, -25.0f, -41.0f, -61.0f});
  require_exact("gdn_gates beta", beta, std::vector<float>{0.5f, 1.0f, 0.0f, 0.5f});
}

// Signs of the Sylvester matrix from the parity of i & j; the factor is a power of two.
void check_hadamard(ThreadPool& pool) {
  for (const int width : {16, 64, 256}) {
    std::vector<float> x(static_cast<size_t>(2 * width));
    for (int i = 0; i < 2 * width; ++i) x[static_cast<size_t>(i)] = small(i);
    std::vector<float> expected(x.size());
    for (int i = 0; i < 2 * width; ++i) {
      int sum = 0;
      for (int j = 0; j < width; ++j) {
        const int value = static_cast<int>(small(i / width * width + j));
        sum += std::popcount(static_cast<unsigned>(i % width & j)) % 2 == 0 ? value : -value;
      }
      expected[static_cast<size_t>(i)] =
          static_cast<float>(sum) / std::sqrt(static_cast<float>(width));
    }
    hadamard(x.data(), width, 2, width, Rounding::none, pool);
    require_exact("hadamard", x, expected);
  }
}

void check_rope(ThreadPool& pool) {
  constexpr int kRotary = 16;
  constexpr int kHeadDim = 32;
  constexpr int kHalf = kRotary / 2;
  const std::vector<float> inv_freq = rope_inverse_frequencies(10000.0, kRotary);
  const RopePosition positions[2] = {{0, 0, 0}, {3, 1000, 77}};
  std::vector<float> x(2 * kHeadDim);
  for (int i = 0; i < 2 * kHeadDim; ++i) x[static_cast<size_t>(i)] = small(i);
  std::vector<float> expected = x;
  for (size_t i = 0; i < kHalf; ++i) {
    const float angle = inv_freq[i] * static_cast<float>(positions[1][i % 3]);
    double sine = 0.0;
    double cosine = 0.0;
    sincos_f64(double{angle}, &sine, &cosine);
    x[kHeadDim + i] = 1.0f;
    x[kHeadDim + kHalf + i] = 0.0f;
    expected[kHeadDim + i] = static_cast<float>(cosine);
    expected[kHeadDim + kHalf + i] = static_cast<float>(sine);
  }
  rope({x.data(), kHeadDim, positions, inv_freq.data(), 2, 1, kHeadDim, kRotary, Rounding::none},
       pool);
  require_exact("rope", x, expected);
}

void check_sums() {
  std::vector<float> x(kValues);
  std::vector<float> y(kValues);
  std::vector<float> expected(kValues);
  for (int i = 0; i < kValues; ++i) {
    x[static_cast<size_t>(i)] = small(i);
    y[static_cast<size_t>(i)] = 16.0f * small(i + 3);
    expected[static_cast<size_t>(i)] = small(i) + 16.0f * small(i + 3);
  }
  std::vector<float> out = unwritten(kValues);
  sum_partials(x.data(), y.data(), out.data(), kValues, Rounding::bf16);
  require_exact("sum_partials", out, expected);
  residual_add(x.data(), y.data(), kValues, Rounding::bf16);
  require_exact("residual_add", x, expected);
}

void check_embedding() {
  std::vector<uint16_t> codes(kValues);
  for (int i = 0; i < kValues; ++i) codes[static_cast<size_t>(i)] = float_to_bf16(small(i));
  WeightMatrix table;
  table.codec = Codec::bf16;
  table.n_rows = kRows;
  table.n_cols = kWidth;
  table.codes = reinterpret_cast<const std::byte*>(codes.data());
  table.row_bytes = codec_row_bytes(Codec::bf16, kWidth);
  const int32_t ids[4] = {2, 0, 2, 1};
  std::vector<float> expected;
  for (const int32_t id : ids) {
    for (int i = 0; i < kWidth; ++i) expected.push_back(small(id * kWidth + i));
  }
  std::vector<float> out = unwritten(expected.size());
  embedding(table, ids, 4, Rounding::bf16, out.data());
  require_exact("embedding", out, expected);
}

void check_argmax() {
  std::vector<float> x(77);
  for (int i = 0; i < 77; ++i) x[static_cast<size_t>(i)] = small(i);
  x[41] = 9.0f;
  x[60] = 9.0f;  // a tie: the lower index counts
  const auto index = static_cast<float>(argmax(x.data(), 77));
  require_exact("argmax", std::vector<float>{index}, std::vector<float>{41.0f});
  const float three = 3.0f;
  require_exact("log_sum_exp", std::vector<float>{static_cast<float>(log_sum_exp(&three, 1))},
                std::vector<float>{three});
}

}  // namespace

void check_rowwise_ops(ThreadPool& pool) {
  check_rmsnorm(pool);
  check_gated_rmsnorm(pool);
  check_swiglu(pool);
  check_gdn_gates();
  check_hadamard(pool);
  check_rope(pool);
  check_sums();
  check_embedding();
  check_argmax();
}

}  // namespace lockstep
