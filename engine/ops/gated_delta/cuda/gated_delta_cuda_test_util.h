// Problems of the gated delta rule for its tests on a card.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/float_formats.h"
#include "engine/ops/common/cuda/device_test_util.h"
#include "engine/ops/common/op_test_util.h"
#include "engine/ops/common/tolerance.h"
#include "engine/ops/gated_delta/cuda/gated_delta_cuda.h"
#include "engine/ops/gated_delta/gated_delta.h"

namespace lockstep::op_test {

struct GdnHeads {
  int n_k_heads;
  int n_v_heads;
  int64_t k_width() const { return int64_t{n_k_heads} * kGdnHeadDim; }
  int64_t v_width() const { return int64_t{n_v_heads} * kGdnHeadDim; }
  int64_t row_width() const { return 2 * k_width() + v_width(); }  // [Q | K | V]
  int64_t state_size() const { return int64_t{n_v_heads} * kGdnHeadDim * kGdnHeadDim; }
};

// Tokens of one sequence and its state before them: half lives from `shortest` to `longest` tokens,
// strengths from 0 to 1 with both ends present, a zero key and a zero query.
struct GdnProblem {
  GdnHeads heads;
  int64_t n_tokens;
  std::vector<float> rows;  // [n_tokens, row_width], values that bfloat16 holds
  std::vector<float> log_decay;
  std::vector<float> beta;
  std::vector<float> state;

  // For the references.
  GatedDeltaArgs args(int64_t first_position) {
    return {rows.data(),
            rows.data() + heads.k_width(),
            rows.data() + 2 * heads.k_width(),
            heads.row_width(),
            heads.row_width(),
            log_decay.data(),
            beta.data(),
            state.data(),
            nullptr,
            heads.v_width(),
            first_position,
            n_tokens,
            heads.n_k_heads,
            heads.n_v_heads,
            kGdnHeadDim,
            kGdnHeadDim,
            Rounding::none};
  }
};

inline GdnProblem make_gdn_problem(uint64_t seed, GdnHeads heads, int64_t n_tokens,
                                   double shortest = 0.2, double longest = 2000) {
  GdnProblem p{heads, n_tokens, {}, {}, {}, {}};
  p.rows = random_floats(seed, n_tokens * heads.row_width(), 1.5f, Rounding::bf16);
  p.state = random_floats(seed + 1, heads.state_size(), 0.3f);
  PhiloxStream stream(seed + 2);
  for (int64_t i = 0; i < n_tokens * heads.n_v_heads; ++i) {
    const double half_life = shortest * std::pow(longest / shortest, stream.next_uniform());
    p.log_decay.push_back(static_cast<float>(-std::log(2.0) / half_life));
    const uint32_t kind = stream.next_below(8);
    p.beta.push_back(kind == 0 ? 0.0f : kind == 1 ? 1.0f : stream.next_uniform());
  }
  if (n_tokens > 3) {
    std::fill_n(p.rows.begin() + 2 * heads.row_width() + heads.k_width(), heads.k_width(), 0.0f);
    std::fill_n(p.rows.begin() + 3 * heads.row_width(), heads.k_width(), 0.0f);
  }
  return p;
}

struct GdnResult {
  std::vector<float> out;  // [n_tokens, v_width]
  std::vector<float> state;
};

inline bool same(const GdnResult& a, const GdnResult& b) {
  return same_bits(a.out, b.out) && same_bits(a.state, b.state);
}

inline std::vector<uint16_t> bf16_bits_of(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(float_to_bf16(value));
  return bits;
}

// The bound of a rounded output.
inline std::vector<double> rounded_bounds(const std::vector<double>& value,
                                          const std::vector<double>& bound) {
  std::vector<double> out;
  for (size_t i = 0; i < value.size(); ++i) {
    out.push_back(tolerance::with_output_rounding(value[i], bound[i], Rounding::bf16));
  }
  return out;
}

}  // namespace lockstep::op_test
