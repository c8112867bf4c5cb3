// Exact cases of sampling (exact_case.h): the CPU's tokens, and the largest logits in order.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ops/common/exact_case.h"
#include "engine/ops/sample/sample.h"

namespace lockstep {

inline constexpr int kSampleExactTop = 5;  // largest logits of each column

struct SampleExactRequest {
  SamplingParams params;
  TokenHistory history;
  int64_t position = 0;
};

struct SampleExactProblem {
  // Requests that a short list serves (greedy, top_k), or those that need all candidates.
  SampleExactProblem(uint64_t seed, bool listed);
  int64_t n_live = 4990;
  std::vector<float> logits;  // of every request; bfloat16 values, so that ties abound
  std::vector<SampleExactRequest> requests;
};

std::vector<ExactCase> sample_exact_cases();

// CUDA builds alone. The answer to sample_exact_cases()[index].
std::vector<float> sample_exact_card(size_t index, uint64_t seed, Device& device, Stream& stream);

}  // namespace lockstep
