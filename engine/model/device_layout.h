// How a kernel wants a matrix's codes to lie in its memory: a named, reversible permutation of
// units of a few bytes, declared beside the kernel and applied once, at load. Every layout proves
// itself: before its result is used (always in tests, at load when `verify` is set) the inverse
// must give the stored bytes back.
//
// A path that meets a layout which it does not know must not run: the numbers would be wrong
// without any error. So a matrix carries the name of its layout, and whoever takes it asks
// require_layout first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/weight_matrix.h"

namespace lockstep {

// Units of a row-major array [n_rows, n_units].
struct LayoutShape {
  int64_t n_rows = 0;
  int64_t n_units = 0;     // in a row
  int64_t unit_bytes = 1;  // moved as a whole

  int64_t n_bytes() const { return n_rows * n_units * unit_bytes; }
};

struct DeviceLayout {
  std::string_view name;
  // True when the permutation is defined for this shape (tile sizes divide it).
  bool (*accepts)(const LayoutShape& shape);
  // Where unit `unit` of row `row` goes: a bijection onto [0, n_rows * n_units).
  int64_t (*place)(const LayoutShape& shape, int64_t row, int64_t unit);
};

inline constexpr std::string_view kRowMajor = "row-major";
const DeviceLayout& row_major_layout();

// Layouts that a path (the CPU kernels, one CUDA architecture) understands.
class LayoutSet {
 public:
  // Always holds row-major.
  explicit LayoutSet(std::vector<const DeviceLayout*> layouts = {});

  // Throws Error that names `what`, the layout and the known ones when `name` is not among them.
  const DeviceLayout& require(std::string_view name, const std::string& what) const;

 private:
  std::vector<const DeviceLayout*> layouts_;
};

// Throws Error naming `what` when the layout does not accept the shape, or when it is no bijection.
std::vector<std::byte> apply_layout(const DeviceLayout& layout, const LayoutShape& shape,
                                    std::span<const std::byte> stored, bool verify,
                                    const std::string& what);

std::vector<std::byte> undo_layout(const DeviceLayout& layout, const LayoutShape& shape,
                                   std::span<const std::byte> packed);

}  // namespace lockstep
