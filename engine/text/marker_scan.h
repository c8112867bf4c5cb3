// Finding markers in text that arrives in pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace lockstep {

// Length of the longest suffix of `text` that begins `marker` without being all of it.
inline size_t partial_marker_length(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (marker.starts_with(text.substr(text.size() - n))) return n;
  }
  return 0;
}

}  // namespace lockstep
