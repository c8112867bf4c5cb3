#include "engine/media/orientation.h"

#include <cstring>
#include <utility>

namespace lockstep {
namespace {

constexpr uint16_t kOrientationTag = 0x0112;
constexpr uint16_t kShortType = 3;
constexpr size_t kEntryBytes = 12;

// Reads integers of a TIFF block; 0 beyond its end.
class TiffReader {
 public:
  TiffReader(std::span<const std::byte> bytes, bool big_endian)
      : bytes_(bytes), big_endian_(big_endian) {}

  uint32_t integer(size_t at, size_t n_bytes) const {
    if (at > bytes_.size() || bytes_.size() - at < n_bytes) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < n_bytes; ++i) {
      const size_t shift = 8 * (big_endian_ ? n_bytes - 1 - i : i);
      value |= std::to_integer<uint32_t>(bytes_[at + i]) << shift;
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool big_endian_;
};

bool starts_with(std::span<const std::byte> bytes, const char* text, size_t n) {
  return bytes.size() >= n && std::memcmp(bytes.data(), text, n) == 0;
}

}  // namespace

int exif_orientation(std::span<const std::byte> exif) {
  if (starts_with(exif, "Exif\0\0", 6)) exif = exif.subspan(6);
  const bool big = starts_with(exif, "MM\0*", 4);
  if (!big && !starts_with(exif, "II*\0", 4)) return 1;
  const TiffReader tiff(exif, big);
  const size_t directory = tiff.integer(4, 4);
  const size_t n_entries = tiff.integer(directory, 2);
  for (size_t i = 0; i < n_entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > exif.size()) return 1;
    if (tiff.integer(entry, 2) != kOrientationTag) continue;
    const uint32_t value = tiff.integer(entry + 8, 2);
    const bool valid = tiff.integer(entry + 2, 2) == kShortType && value >= 1 && value <= 8;
    return valid ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  // 5 to 8 exchange rows and columns. Of the stored picture, `flip_x` and `flip_y` say which end of
  // a stored row or column comes first.
  const bool swaps = orientation >= 5;
  const bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image result;
  result.width = swaps ? image.height : image.width;
  result.height = swaps ? image.width : image.height;
  result.rgb.resize(image.rgb.size());
  uint8_t* out = result.rgb.data();
  for (int64_t y = 0; y < result.height; ++y) {
    for (int64_t x = 0; x < result.width; ++x, out += 3) {
      const int64_t along = swaps ? y : x;
      const int64_t down = swaps ? x : y;
      const int64_t from_x = flip_x ? image.width - 1 - along : along;
      const int64_t from_y = flip_y ? image.height - 1 - down : down;
      std::memcpy(out, image.rgb.data() + 3 * (from_y * image.width + from_x), 3);
    }
  }
  return result;
}

}  // namespace lockstep
