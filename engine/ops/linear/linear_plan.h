// Block sizes of the CPU product. They move speed and never bits.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep {

inline constexpr int64_t kMaxTileRows = 4;    // rows of the largest register tile
inline constexpr int64_t kMaxPanelRows = 32;  // multiple of kMaxTileRows

struct LinearPlan {
  int64_t n_cols;        // columns padded to whole lane groups
  int64_t group_tokens;  // tokens whose activations are packed together
  int64_t panel_rows;    // decoded rows that stay in the first-level cache beside a tile of tokens
  int64_t token_block;   // activations that stay in the second-level cache while panels go by
};

constexpr int64_t padded_columns(int64_t n_cols) {
  return (n_cols + 15) / 16 * 16;
}

constexpr LinearPlan plan_linear(int64_t weight_columns, int64_t group_tokens) {
  constexpr int64_t kPanelFloats = 24 * 1024 / 4;
  constexpr int64_t kTokenFloats = 1024 * 1024 / 4;
  const int64_t n_cols = padded_columns(weight_columns);
  const int64_t rows = kPanelFloats / n_cols / kMaxTileRows * kMaxTileRows;
  return {n_cols, group_tokens, std::clamp(rows, kMaxTileRows, kMaxPanelRows),
          std::max<int64_t>(kTokenFloats / n_cols / 12 * 12, 24)};
}

}  // namespace lockstep
