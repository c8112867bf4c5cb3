// Exact case of verification (exact_case.h): integers and copies, any values.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ops/common/exact_case.h"
#include "engine/ops/rope/rope.h"

namespace lockstep {

inline constexpr int kVerifyExactSpans = 8;
inline constexpr int kVerifyExactColumns = 6;  // of each span
inline constexpr int64_t kVerifyExactWidth = 1032;

struct VerifyExactProblem {
  explicit VerifyExactProblem(uint64_t seed);
  std::vector<int32_t> fed;  // [spans, columns]; most drafts are right
  std::vector<int32_t> tokens;
  std::vector<int32_t> forced;
  std::vector<RopePosition> positions;
  std::vector<int32_t> first_positions;  // [spans]
  std::vector<float> rows;               // [spans, columns, width], values that bfloat16 holds
};

std::vector<ExactCase> verify_exact_cases();

// CUDA builds alone. The answer to verify_exact_cases()[index].
std::vector<float> verify_exact_card(size_t index, uint64_t seed, Device& device, Stream& stream);

}  // namespace lockstep
