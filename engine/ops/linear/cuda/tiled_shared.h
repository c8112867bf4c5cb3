// Shared-memory layout of the sm80 tiled kernels: what the plan requests and the kernels use.
#pragma once

#include <cstdint>

#include "engine/ops/linear/cuda/skinny_shared.h"

namespace lockstep {

inline constexpr int kTiledRowTiles = 8;  // of 16 rows: a block's
inline constexpr int kTiledRows = 16 * kTiledRowTiles;
// Two blocks a multiprocessor; every card from sm_80 on has this much for one.
inline constexpr int kTiledSharedBytes = 99 * 1024;

// Of the stages of one of n_blocks blocks that share a multiprocessor of a card of 9.0.
constexpr int tiled_hopper_bytes(int n_blocks) {
  return (226 / n_blocks - 2) * 1024;
}

// Bytes of a row of activations: an odd multiple of 64, so that the eight lanes of a phase (two
// rows, four chunks) meet eight different groups of banks.
constexpr int tiled_row_bytes(int block_columns) {
  return 2 * block_columns % 128 == 0 ? 2 * block_columns + 64 : 2 * block_columns;
}

// Codes of all row tiles and activations of `n_tokens` columns, for one block of columns of K.
constexpr int tiled_stage_bytes(int code_stage_bytes, int block_columns, int n_tokens) {
  return kTiledRowTiles * code_stage_bytes + n_tokens * tiled_row_bytes(block_columns);
}
constexpr int tiled_stages(int stage_bytes) {
  const int fitting = kTiledSharedBytes / stage_bytes;
  return fitting > 6 ? 6 : fitting;
}

// Finished sums on their way out, [token][row]: a stride that spreads a fragment over all banks.
LOCKSTEP_SHARED_LAYOUT int tiled_out_stride(int n_rows) {
  return n_rows + 4;
}

constexpr int tiled_shared_bytes(int stage_bytes, int n_tokens) {
  const int ring = tiled_stages(stage_bytes) * stage_bytes;
  const int out = n_tokens * tiled_out_stride(kTiledRows) * 4;
  return ring > out ? ring : out;
}

}  // namespace lockstep
