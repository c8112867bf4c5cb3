// Exact cases (exact_case.h) of the vision tower's ops.
//   layernorm            rows of integers around an integer, whose deviation with eps is 2, 4 or 8
//   vision_attention     each query looks at 1, 2, 4, ... 128 keys with the same weight, all others
//                        have exp(-1920) = 0; values are integers
//   weighted_embedding   the CPU's bits: any values
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/ops/common/exact_case.h"
#include "engine/ops/weighted_embedding/weighted_embedding.h"

namespace lockstep {

enum class VisionExact : uint8_t { layernorm, vision_attention, weighted_embedding };

struct VisionExactOp {
  VisionExact op;
  const char* folder;
};
inline constexpr std::array<VisionExactOp, 3> kVisionExactOps = {{
    {VisionExact::layernorm, "layernorm"},
    {VisionExact::vision_attention, "vision_attention"},
    {VisionExact::weighted_embedding, "weighted_embedding"},
}};

struct LayerNormExactProblem {
  LayerNormExactProblem(uint64_t seed, int64_t width);
  int64_t n_rows = 5;
  int64_t width;
  std::vector<float> x;
  std::vector<float> weight;
  std::vector<float> bias;
};
// A vector of eight a thread, and two.
inline constexpr std::array<int64_t, 2> kLayerNormExactWidths = {1152, 4608};

struct VisionAttentionExactProblem {
  explicit VisionAttentionExactProblem(uint64_t seed);
  int64_t n_tokens = 160;
  int n_heads = 2;
  int head_dim = 72;
  float scale = 0.125f;
  std::vector<float> q;  // [n_tokens, n_heads, head_dim]
  std::vector<float> k;
  std::vector<float> v;
};

struct WeightedExactProblem {
  explicit WeightedExactProblem(uint64_t seed);
  int64_t n_rows = 50;
  int64_t width = 1152;
  std::vector<float> table;
  std::vector<WeightedRows> sources;
};

std::vector<ExactCase> vision_exact_cases(VisionExact op);

// CUDA builds alone. The answer to vision_exact_cases(op)[index].
std::vector<float> vision_exact_card(VisionExact op, size_t index, uint64_t seed, Device& device,
                                     Stream& stream);

}  // namespace lockstep
