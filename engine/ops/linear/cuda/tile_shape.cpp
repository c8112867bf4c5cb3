#include "engine/ops/linear/cuda/tile_shape.h"

#include <algorithm>

namespace lockstep {
namespace {

// Hundredths of a microsecond for 128 columns of K, fitted to what an H200 took for matrices of the
// 27B model and 128, 512 and 2048 columns: of a block among others, and of the last ones of a
// multiprocessor. Orders of time, so another card may differ.
struct Cost {
  int among;
  int last;
};

using Costs = std::array<Cost, kTileShapes.size()>;

constexpr Costs kFourBits = {{{166, 166}, {88, 150}, {58, 88}, {31, 66}, {43, 71}, {23, 53}}};
constexpr Costs kEightBits = {{{178, 178}, {96, 160}, {70, 100}, {37, 76}, {47, 78}, {25, 58}}};
constexpr Costs kSixteenBits = {{{195, 195}, {106, 170}, {78, 110}, {42, 95}, {58, 95}, {30, 78}}};
constexpr Costs kInt4 = {{{163, 163}, {125, 125}, {57, 92}, {32, 68}, {44, 75}, {22, 48}}};
constexpr Costs kFp8Block = {{{226, 226}, {152, 152}, {88, 112}, {45, 115}, {81, 117}, {38, 68}}};

const Costs& costs_of(Codec codec) {
  switch (codec) {
    case Codec::nvfp4:
      return kFourBits;
    case Codec::int4:
      return kInt4;
    case Codec::fp8:
      return kEightBits;
    case Codec::fp8_block:
      return kFp8Block;
    default:
      return kSixteenBits;
  }
}

const TileShape& shape_of(Codec codec, size_t index) {
  const bool scaled = codec == Codec::int4 || codec == Codec::fp8_block;
  return scaled ? kScaledTileShapes[index] : kTileShapes[index];
}

int64_t rounded_share(int64_t whole, int64_t part) {
  return (whole + part - 1) / part;
}

}  // namespace

int tile_shape_for(Codec codec, int n_row_tiles, int64_t n_columns, int n_multiprocessors) {
  const Costs& costs = costs_of(codec);
  int best = 0;
  int64_t best_time = 0;
  for (size_t i = 0; i < kTileShapes.size(); ++i) {
    const TileShape& shape = shape_of(codec, i);
    const int64_t blocks =
        rounded_share(n_row_tiles, shape.row_tiles) * rounded_share(n_columns, shape.columns);
    const int64_t most = rounded_share(blocks, n_multiprocessors);
    const int64_t n_last = most % shape.resident;
    int64_t time = (most - n_last) * costs[i].among;
    if (n_last > 0) time += std::max<int64_t>(n_last * costs[i].among, costs[i].last);
    if (i > 0 && time >= best_time) continue;
    best = static_cast<int>(i);
    best_time = time;
  }
  return best;
}

}  // namespace lockstep
