// A decoded picture and what a picture may cost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

struct Image {
  int64_t width = 0;
  int64_t height = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3]
};

// Checked against the header before anything is decoded. The pixel limit bounds the memory:
// decoding takes at most about 12 bytes a pixel (a progressive JPEG's coefficients and the result).
struct ImageLimits {
  size_t max_bytes = size_t{32} << 20;    // of the encoded file
  int64_t max_pixels = int64_t{1} << 26;  // width * height
  int64_t max_side = 32768;
};

}  // namespace lockstep
