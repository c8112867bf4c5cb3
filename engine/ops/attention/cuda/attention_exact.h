// Integer-exact case of decode attention: q = 0 gives every position the same weight, and the mean
// of 512 integers is exact until it is rounded to bfloat16.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ops/attention/kv_view.h"
#include "engine/ops/common/exact_case.h"

namespace lockstep {

inline constexpr int kAttentionExactHeads = 12;
inline constexpr int kAttentionExactKvHeads = 2;
inline constexpr int64_t kAttentionExactPositions = 512;
inline constexpr int kAttentionExactSegment = 256;

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
