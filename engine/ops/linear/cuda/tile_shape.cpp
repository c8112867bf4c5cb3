#include "engine/ops/linear/cuda/tile_shape.h"

#include <algorithm>

namespace lockstep {
namespace {

// Hundredths of a microsecond for 128 columns of K, seen on an H200 with 16384 rows and 2048
// columns: of a block among others, and of one alone. Orders of time, so another card may differ.
struct Cost {
  int among;
  int alone;
};

using Costs = std::array<Cost, kTileShapes.size()>;

constexpr Costs kFourBits = {{{168, 207}, {88, 125}, {58, 88}, {31, 66}, {43, 71}, {23, 53}}};
constexpr Costs kEightBits = {{{180, 210}, {94, 130}, {70, 99}, {37, 76}, {47, 78}, {25, 58}}};
constexpr Costs kSixteenBits = {{{215, 230}, {107, 136}, {78, 110}, {44, 95}, {58, 95}, {30, 78}}};
constexpr Costs kInt4 = {{{125, 125}, {125, 125}, {57, 92}, {32, 68}, {44, 75}, {22, 48}}};
constexpr Costs kFp8Block = {{{154, 145}, {154, 145}, {88, 122}, {44, 90}, {81, 117}, {36, 68}}};

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
  return scaled && kTileShapes[index].columns == 128 ? kWideScaledShape : kTileShapes[index];
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
    const int64_t time =
        std::max(most * costs[i].among, rounded_share(most, shape.resident) * costs[i].alone);
    if (i > 0 && time >= best_time) continue;
    best = static_cast<int>(i);
    best_time = time;
  }
  return best;
}

}  // namespace lockstep
