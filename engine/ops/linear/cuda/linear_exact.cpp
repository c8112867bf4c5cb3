#include "engine/ops/linear/cuda/linear_exact.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "engine/base/error.h"
#include "engine/ops/linear/linear.h"

namespace lockstep {
namespace {

float power_below_8(PhiloxStream& random) {
  return std::ldexp(1.0f, static_cast<int>(random.next_below(3)));
}

// fp8 and half formats hold integers from -4 to 4; codes of nvfp4 and int4 are integers (or halves)
// as they come.
void fill_codes(Codec codec, PhiloxStream& random, TestMatrix& matrix) {
  const bool fp8 = codec == Codec::fp8 || codec == Codec::fp8_block;
  if (!fp8 && codec != Codec::f16 && codec != Codec::bf16) return;
  for (int64_t n = 0; n < kLinearExactRows; ++n) {
    for (int64_t k = 0; k < kLinearExactCols; ++k) {
      const float value = static_cast<float>(random.next_below(9)) - 4.0f;
      if (fp8) {
        matrix.row(n)[k] = std::byte{float_to_e4m3(value)};
      } else {
        const uint16_t half = codec == Codec::f16 ? float_to_f16(value) : float_to_bf16(value);
        std::memcpy(matrix.row(n) + 2 * k, &half, sizeof(half));
      }
    }
  }
}

}  // namespace

LinearExactProblem::LinearExactProblem(Codec codec, uint64_t seed)
    : matrix(codec, kLinearExactRows, kLinearExactCols, seed, kLinearExactGroup),
      view(matrix.view()),
      row_scale(static_cast<size_t>(kLinearExactRows), 0.5f) {
  PhiloxStream random(seed, 1);
  for (int64_t i = 0; i < kLinearExactRows * view.block_scale_stride; ++i) {
    byte_scales.push_back(float_to_e4m3(power_below_8(random)));
    scales.push_back(power_below_8(random));
  }
  if (codec == Codec::nvfp4) view.block_scales = byte_scales.data();
  if (codec == Codec::fp8_block || codec == Codec::int4) view.block_scales = scales.data();
  if (view.row_scale != nullptr) view.row_scale = row_scale.data();
  fill_codes(codec, random, matrix);
  x.resize(static_cast<size_t>(kSkinnyTokens * kLinearExactCols));
  for (uint16_t& value : x) value = float_to_bf16(static_cast<float>(random.next_below(7)) - 3.0f);
}

std::vector<float> linear_exact_host(Codec codec, uint64_t seed) {
  const LinearExactProblem problem(codec, seed);
  std::vector<float> wide;
  for (const uint16_t bits : problem.x) wide.push_back(bf16_to_float(bits));
  std::vector<double> value(static_cast<size_t>(kSkinnyTokens * kLinearExactRows));
  std::vector<double> condition(value.size());
  linear_oracle(
      {problem.view, wide.data(), kLinearExactCols, nullptr, 0, kSkinnyTokens, Rounding::none},
      value.data(), condition.data());
  std::vector<float> out;
  for (const double v : value) {
    out.push_back(static_cast<float>(v));
    LOCKSTEP_CHECK(double{out.back()} == v);
  }
  return out;
}

std::vector<ExactCase> linear_exact_cases() {
  std::vector<ExactCase> cases;
  for (const LinearRoute& route : linear_routes()) {
    cases.push_back(
        {fmt::format("{} {} [{}, {}] T {}", codec_name(route.codec), family_name(route.family),
                     kLinearExactRows, kLinearExactCols, kSkinnyTokens),
         route.family == KernelFamily::sm80 ? 80 : 70,
         [codec = route.codec](uint64_t seed) { return linear_exact_host(codec, seed); }});
  }
  return cases;
}

}  // namespace lockstep
