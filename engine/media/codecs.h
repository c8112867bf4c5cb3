// The decoders behind decode_image, one file a format. Each checks size limits as soon as it knows
// the size, and returns the picture as stored together with its EXIF orientation.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "engine/media/image.h"

namespace lockstep {

struct StoredImage {
  Image image;
  int orientation = 1;  // EXIF: 1 to 8
};

// Throws Error when the picture is empty or beyond the limits.
void check_image_size(int64_t width, int64_t height, const std::string& label,
                      const ImageLimits& limits);

StoredImage decode_png(std::span<const std::byte> bytes, const std::string& label,
                       const ImageLimits& limits);
StoredImage decode_jpeg(std::span<const std::byte> bytes, const std::string& label,
                        const ImageLimits& limits);
StoredImage decode_webp(std::span<const std::byte> bytes, const std::string& label,
                        const ImageLimits& limits);

}  // namespace lockstep
