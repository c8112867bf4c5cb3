// Tiles of the prompt's kernels on cards of 9.0, and which one multiplies a matrix soonest. No
// shape moves a bit: one chain of sums an element in all of them.
#pragma once

#include <array>
#include <cstdint>

#include "engine/model/weight_matrix.h"

namespace lockstep {

struct TileShape {
  int row_tiles;  // of 16 rows; a warp each
  int columns;
  int resident;  // blocks that share a multiprocessor
};

inline constexpr std::array kTileShapes = {
    TileShape{16, 128, 1}, TileShape{8, 128, 2}, TileShape{8, 64, 2},
    TileShape{4, 64, 3},   TileShape{8, 32, 3},  TileShape{4, 32, 4},
};
// Where sums are scaled, those with 128 columns need twice the registers.
inline constexpr std::array kScaledTileShapes = {
    TileShape{12, 128, 1}, TileShape{8, 128, 1}, TileShape{8, 64, 2},
    TileShape{4, 64, 3},   TileShape{8, 32, 3},  TileShape{4, 32, 4},
};
static_assert(kScaledTileShapes.size() == kTileShapes.size());

// Index of the shape. One of the card's multiprocessors has the most blocks; it ends after their
// shares of its throughput, but the last of them wait for their own chains.
int tile_shape_for(Codec codec, int n_row_tiles, int64_t n_columns, int n_multiprocessors);

}  // namespace lockstep
