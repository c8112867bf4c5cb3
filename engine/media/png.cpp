#include <png.h>

#include <cstring>

#include "engine/base/error.h"
#include "engine/media/codecs.h"
#include "engine/media/orientation.h"

namespace lockstep {
namespace {

constexpr size_t kMaxChunkBytes = size_t{8} << 20;  // a compressed text or profile, unpacked
constexpr size_t kMaxMessage = 200;
constexpr size_t kSignatureBytes = 8;  // the caller has seen them

struct Reader {
  std::span<const std::byte> bytes;
  size_t at = 0;
  char message[kMaxMessage] = "";
};

void on_read(png_structp png, png_bytep out, size_t n) {
  auto* reader = static_cast<Reader*>(png_get_io_ptr(png));
  if (reader->bytes.size() - reader->at < n) png_error(png, "the file is cut short");
  std::memcpy(out, reader->bytes.data() + reader->at, n);
  reader->at += n;
}

void on_error(png_structp png, png_const_charp message) {
  auto* reader = static_cast<Reader*>(png_get_error_ptr(png));
  std::strncpy(reader->message, message, kMaxMessage - 1);
  png_longjmp(png, 1);
}

// A damaged chunk beside the picture (a profile, a comment) changes no pixel.
void on_warning(png_structp, png_const_charp) {}

struct Handles {
  png_structp png = nullptr;
  png_infop info = nullptr;
  ~Handles() { png_destroy_read_struct(&png, info == nullptr ? nullptr : &info, nullptr); }
};

// Looks at the heads of all chunks before libpng does, which allocates what a chunk says that it
// holds (eXIf) before it reads it, whatever the limits, and which reads an animation's first
// picture and ignores the rest (the chunk acTL marks one).
void check_chunks(std::span<const std::byte> bytes, const std::string& label) {
  constexpr size_t kHeadBytes = 8;
  constexpr size_t kCrcBytes = 4;
  size_t at = kSignatureBytes;
  while (bytes.size() - at >= kHeadBytes) {
    const auto* head = reinterpret_cast<const png_byte*>(bytes.data() + at);
    const size_t n_bytes = png_get_uint_32(head);
    if (std::memcmp(head + 4, "acTL", 4) == 0) {
      fail("{}: is an animation; send a still picture", label);
    }
    if (std::memcmp(head + 4, "IEND", 4) == 0) return;
    const size_t n_left = bytes.size() - at - kHeadBytes;
    if (n_left < kCrcBytes || n_left - kCrcBytes < n_bytes) {
      fail("{}: not a readable PNG: the chunk at byte {} says that it holds {} bytes, {} are left",
           label, at, n_bytes, n_left);
    }
    at += kHeadBytes + n_bytes + kCrcBytes;
  }
}

// Everything to three channels of 8 bits.
void ask_for_rgb(png_structp png, png_infop info) {
  const int colour_type = png_get_color_type(png, info);
  png_set_strip_16(png);
  if (colour_type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (png_get_bit_depth(png, info) < 8) png_set_expand_gray_1_2_4_to_8(png);
  if ((colour_type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
  // Also the alpha that a palette's tRNS chunk would become.
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
}

// The two halves of reading. Nothing here owns memory across a libpng call: an error leaves by
// longjmp. The first allocates nothing that grows with the picture.
bool read_header(const Handles& handles, png_uint_32* width, png_uint_32* height) {
  if (setjmp(png_jmpbuf(handles.png)) != 0) return false;
  png_read_info(handles.png, handles.info);
  *width = png_get_image_width(handles.png, handles.info);
  *height = png_get_image_height(handles.png, handles.info);
  return true;
}

bool read_pixels(const Handles& handles, png_bytepp rows, size_t row_bytes) {
  if (setjmp(png_jmpbuf(handles.png)) != 0) return false;
  ask_for_rgb(handles.png, handles.info);
  png_read_update_info(handles.png, handles.info);
  LOCKSTEP_CHECK(png_get_rowbytes(handles.png, handles.info) == row_bytes);
  png_read_image(handles.png, rows);
  png_read_end(handles.png, handles.info);
  return true;
}

int stored_orientation(const Handles& handles) {
  png_uint_32 n_bytes = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(handles.png, handles.info, &n_bytes, &exif) == 0) return 1;
  return exif_orientation(std::as_bytes(std::span(exif, n_bytes)));
}

}  // namespace

StoredImage decode_png(std::span<const std::byte> bytes, const std::string& label,
                       const ImageLimits& limits) {
  check_chunks(bytes, label);
  Reader reader{bytes};
  Handles handles;
  handles.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, on_error, on_warning);
  LOCKSTEP_CHECK(handles.png != nullptr);
  handles.info = png_create_info_struct(handles.png);
  LOCKSTEP_CHECK(handles.info != nullptr);
  png_set_read_fn(handles.png, &reader, on_read);
  png_set_chunk_malloc_max(handles.png, kMaxChunkBytes);
  // Our own check of the size gives the clearer message.
  png_set_user_limits(handles.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_uint_32 width = 0;
  png_uint_32 height = 0;
  if (!read_header(handles, &width, &height)) {
    fail("{}: not a readable PNG: {}", label, reader.message);
  }
  check_image_size(width, height, label, limits);
  StoredImage stored;
  stored.image = {width, height, std::vector<uint8_t>(size_t{width} * height * 3)};
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = stored.image.rgb.data() + y * width * 3;
  if (!read_pixels(handles, rows.data(), size_t{width} * 3)) {
    fail("{}: not a readable PNG: {}", label, reader.message);
  }
  stored.orientation = stored_orientation(handles);
  return stored;
}

}  // namespace lockstep
