#include "engine/media/decode.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/media/codecs.h"
#include "engine/media/orientation.h"

namespace lockstep {
namespace {

bool has_magic(std::span<const std::byte> bytes, size_t at, const char* magic, size_t n) {
  return bytes.size() >= at + n && std::memcmp(bytes.data() + at, magic, n) == 0;
}

StoredImage decode_stored(std::span<const std::byte> bytes, const std::string& label,
                          const ImageLimits& limits) {
  if (has_magic(bytes, 0, "\x89PNG\r\n\x1a\n", 8)) return decode_png(bytes, label, limits);
  if (has_magic(bytes, 0, "\xff\xd8\xff", 3)) return decode_jpeg(bytes, label, limits);
  if (has_magic(bytes, 0, "RIFF", 4) && has_magic(bytes, 8, "WEBP", 4)) {
    return decode_webp(bytes, label, limits);
  }
  fail("{}: is not a PNG, JPEG or WebP picture", label);
}

}  // namespace

void check_image_size(int64_t width, int64_t height, const std::string& label,
                      const ImageLimits& limits) {
  if (width < 1 || height < 1) fail("{}: the picture is empty ({} x {})", label, width, height);
  if (width > limits.max_side || height > limits.max_side || height > limits.max_pixels / width) {
    fail("{}: {} x {} pixels are more than {} in all or {} a side", label, width, height,
         limits.max_pixels, limits.max_side);
  }
}

Image decode_image(std::span<const std::byte> bytes, const std::string& label,
                   const ImageLimits& limits) {
  if (bytes.empty()) fail("{}: the picture is empty", label);
  if (bytes.size() > limits.max_bytes) {
    fail("{}: {} bytes are more than {}", label, bytes.size(), limits.max_bytes);
  }
  StoredImage stored = decode_stored(bytes, label, limits);
  return upright(std::move(stored.image), stored.orientation);
}

}  // namespace lockstep
