#include "engine/model/device_layout.h"

#include <gtest/gtest.h>

#include "engine/model/tests/test_files.h"

namespace lockstep {
namespace {

// Tiles of 8 rows x 4 units, tile by tile.
int64_t tiled_place(const LayoutShape& shape, int64_t row, int64_t unit) {
  const int64_t tile = row / 8 * (shape.n_units / 4) + unit / 4;
  return tile * 32 + row % 8 * 4 + unit % 4;
}
bool tiles_fit(const LayoutShape& shape) {
  return shape.n_rows % 8 == 0 && shape.n_units % 4 == 0;
}
constexpr DeviceLayout kTiled = {"tiles-8x4", tiles_fit, tiled_place};

// A mistake as real ones are: two rows of a tile share a place.
int64_t colliding_place(const LayoutShape& shape, int64_t row, int64_t unit) {
  return tiled_place(shape, row % 8 == 7 ? row - 1 : row, unit);
}
constexpr DeviceLayout kColliding = {"colliding", tiles_fit, colliding_place};

TEST(DeviceLayout, InverseGivesTheStoredBytes) {
  PhiloxStream random(21);
  for (const int64_t unit_bytes : {1, 2, 4, 16}) {
    const LayoutShape shape{24, 12, unit_bytes};
    const std::vector<std::byte> stored =
        random_bytes(random, static_cast<size_t>(shape.n_bytes()));
    const auto packed = apply_layout(kTiled, shape, stored, true, "m");
    EXPECT_NE(packed, stored);
    EXPECT_EQ(undo_layout(kTiled, shape, packed), stored);
    EXPECT_EQ(apply_layout(row_major_layout(), shape, stored, true, "m"), stored);
  }
}

TEST(DeviceLayout, AnIrreversibleOneIsFoundAtLoad) {
  PhiloxStream random(22);
  const LayoutShape shape{8, 8, 4};
  const std::vector<std::byte> stored = random_bytes(random, static_cast<size_t>(shape.n_bytes()));
  expect_error([&] { apply_layout(kColliding, shape, stored, true, "layers.0.up"); },
               {"layers.0.up", "colliding", "not reversible"});
}

TEST(DeviceLayout, RefusesShapesItIsNotDefinedFor) {
  const std::vector<std::byte> stored(9 * 8);
  expect_error(
      [&] {
        apply_layout(kTiled, {9, 8, 1}, stored, true, "layers.0.up");
      },
      {"layers.0.up", "tiles-8x4", "9 rows"});
}

TEST(DeviceLayout, APathThatDoesNotKnowALayoutFails) {
  EXPECT_EQ(&LayoutSet().require(kRowMajor, "m"), &row_major_layout());
  EXPECT_EQ(&LayoutSet({&kTiled}).require("tiles-8x4", "m"), &kTiled);
  expect_error([] { LayoutSet().require("tiles-8x4", "layers.0.up"); },
               {"layers.0.up", "tiles-8x4", "row-major"});
}

}  // namespace
}  // namespace lockstep
