#include "engine/model/device_layout.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"

namespace lockstep {
namespace {

bool accepts_all(const LayoutShape&) {
  return true;
}

int64_t row_major_place(const LayoutShape& shape, int64_t row, int64_t unit) {
  return row * shape.n_units + unit;
}

// Calls visit(byte offset in row-major order, byte offset in the layout) for every unit.
template <typename Visit>
void for_each_unit(const DeviceLayout& layout, const LayoutShape& shape, const Visit& visit) {
  const int64_t n_places = shape.n_rows * shape.n_units;
  for (int64_t row = 0; row < shape.n_rows; ++row) {
    for (int64_t unit = 0; unit < shape.n_units; ++unit) {
      const int64_t place = layout.place(shape, row, unit);
      LOCKSTEP_CHECK(place >= 0 && place < n_places);
      visit((row * shape.n_units + unit) * shape.unit_bytes, place * shape.unit_bytes);
    }
  }
}

}  // namespace

const DeviceLayout& row_major_layout() {
  static const DeviceLayout layout = {kRowMajor, accepts_all, row_major_place};
  return layout;
}

LayoutSet::LayoutSet(std::vector<const DeviceLayout*> layouts) : layouts_(std::move(layouts)) {
  layouts_.insert(layouts_.begin(), &row_major_layout());
}

const DeviceLayout& LayoutSet::require(std::string_view name, const std::string& what) const {
  std::string known;
  for (const DeviceLayout* layout : layouts_) {
    if (layout->name == name) return *layout;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", layout->name);
  }
  fail("{}: is laid out as '{}', which this path does not know (it knows {})", what, name, known);
}

std::vector<std::byte> apply_layout(const DeviceLayout& layout, const LayoutShape& shape,
                                    std::span<const std::byte> stored, bool verify,
                                    const std::string& what) {
  LOCKSTEP_CHECK(static_cast<int64_t>(stored.size()) == shape.n_bytes());
  if (!layout.accepts(shape)) {
    fail("{}: layout {} does not fit {} rows of {} units", what, layout.name, shape.n_rows,
         shape.n_units);
  }
  std::vector<std::byte> packed(stored.size());
  for_each_unit(layout, shape, [&](int64_t from, int64_t to) {
    std::memcpy(packed.data() + to, stored.data() + from, static_cast<size_t>(shape.unit_bytes));
  });
  if (verify) {
    const std::vector<std::byte> back = undo_layout(layout, shape, packed);
    if (!std::equal(back.begin(), back.end(), stored.begin())) {
      fail("{}: layout {} is not reversible: its inverse does not give the stored bytes", what,
           layout.name);
    }
  }
  return packed;
}

std::vector<std::byte> undo_layout(const DeviceLayout& layout, const LayoutShape& shape,
                                   std::span<const std::byte> packed) {
  LOCKSTEP_CHECK(static_cast<int64_t>(packed.size()) == shape.n_bytes());
  std::vector<std::byte> stored(packed.size());
  for_each_unit(layout, shape, [&](int64_t from, int64_t to) {
    std::memcpy(stored.data() + from, packed.data() + to, static_cast<size_t>(shape.unit_bytes));
  });
  return stored;
}

}  // namespace lockstep
