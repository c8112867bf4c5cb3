// Integer-exact cases of linear, one a route.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ops/common/exact_case.h"
#include "engine/ops/linear/cuda/linear_plan_cuda.h"
#include "engine/ops/linear/linear_test_matrix.h"

namespace lockstep {

inline constexpr int64_t kLinearExactRows = 200;
inline constexpr int64_t kLinearExactCols = 2080;
inline constexpr int64_t kLinearExactGroup = 32;  // int4

// Weights and scales whose products with x are integers, all sums below 2^24.
struct LinearExactProblem {
  LinearExactProblem(Codec codec, uint64_t seed);

  TestMatrix matrix;
  WeightMatrix view;
  std::vector<uint8_t> byte_scales;
  std::vector<float> scales;
  std::vector<float> row_scale;
  std::vector<uint16_t> x;  // bfloat16 [kSkinnyTokens, kLinearExactCols]
};

std::vector<float> linear_exact_host(Codec codec, uint64_t seed);

// In the order of linear_routes().
std::vector<ExactCase> linear_exact_cases();

// CUDA builds alone. The answer to linear_exact_cases()[index].
std::vector<float> linear_exact_card(size_t index, uint64_t seed, Device& device, Stream& stream);

}  // namespace lockstep
