// Integer-exact cases of attention, one a path: q = 0 gives every position the same weight, and the
// mean of 512 integers is exact until it is rounded to bfloat16.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/ops/attention/cuda/attention_plan_cuda.h"
#include "engine/ops/attention/kv_view.h"
#include "engine/ops/common/exact_case.h"

namespace lockstep {

inline constexpr int kAttentionExactHeads = 12;
inline constexpr int kAttentionExactKvHeads = 2;
inline constexpr int64_t kAttentionExactPositions = 512;
inline constexpr AttentionSegments kAttentionExactSegments = {256, 64, 1};
inline constexpr std::array kAttentionExactPaths = {AttentionPath::decode, AttentionPath::prefill,
                                                    AttentionPath::simple};

struct AttentionExactProblem {
  explicit AttentionExactProblem(uint64_t seed);

  std::vector<float> v;           // integers [positions, KV heads, 256]
  std::vector<uint32_t> pages;    // not in ascending order
  std::vector<std::byte> memory;  // int8 pages that hold v and some k
};

std::vector<ExactCase> attention_exact_cases();

// CUDA builds alone. The answer to attention_exact_cases()[index].
std::vector<float> attention_exact_card(size_t index, uint64_t seed, Device& device,
                                        Stream& stream);

}  // namespace lockstep
