#include <csetjmp>
#include <cstdio>
#include <cstring>

// jpeglib.h wants size_t and FILE declared before it.
#include <jpeglib.h>

#include <jerror.h>

#include "engine/base/error.h"
#include "engine/media/codecs.h"
#include "engine/media/orientation.h"

namespace lockstep {
namespace {

// A progressive file may repeat scans without end, each as long to decode as the whole picture.
constexpr int kMaxScans = 200;

struct ErrorState {
  jpeg_error_mgr manager;  // first: libjpeg hands back a pointer to it
  std::jmp_buf escape;
  char message[JMSG_LENGTH_MAX] = "";
};

ErrorState* state_of(j_common_ptr jpeg) {
  return reinterpret_cast<ErrorState*>(jpeg->err);
}

[[noreturn]] void on_error(j_common_ptr jpeg) {
  ErrorState* state = state_of(jpeg);
  jpeg->err->format_message(jpeg, state->message);
  std::longjmp(state->escape, 1);
}

// Warnings stand for data that libjpeg made up; only bytes between segments are harmless.
void on_message(j_common_ptr jpeg, int level) {
  const bool made_up = level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA;
  if (made_up) on_error(jpeg);
}

void on_progress(j_common_ptr jpeg) {
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(jpeg);
  if (decoder->input_scan_number <= kMaxScans) return;
  ErrorState* state = state_of(jpeg);
  std::snprintf(state->message, sizeof(state->message), "more than %d scans", kMaxScans);
  std::longjmp(state->escape, 1);
}

struct Decoder {
  jpeg_decompress_struct jpeg{};
  ErrorState errors{};
  jpeg_progress_mgr progress{};
  ~Decoder() { jpeg_destroy_decompress(&jpeg); }
};

// The three steps of reading. Nothing in them owns memory across a libjpeg call: errors leave by
// longjmp.
bool read_header(Decoder& decoder, std::span<const std::byte> bytes) {
  if (setjmp(decoder.errors.escape) != 0) return false;
  jpeg_create_decompress(&decoder.jpeg);
  decoder.jpeg.progress = &decoder.progress;
  jpeg_mem_src(&decoder.jpeg, reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));
  jpeg_save_markers(&decoder.jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&decoder.jpeg, TRUE);
  return true;
}

bool start(Decoder& decoder) {
  if (setjmp(decoder.errors.escape) != 0) return false;
  const J_COLOR_SPACE stored = decoder.jpeg.jpeg_color_space;
  const bool four = stored == JCS_CMYK || stored == JCS_YCCK;
  decoder.jpeg.out_color_space = four ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&decoder.jpeg);
  return true;
}

bool read_rows(Decoder& decoder, uint8_t* out, size_t row_bytes) {
  if (setjmp(decoder.errors.escape) != 0) return false;
  while (decoder.jpeg.output_scanline < decoder.jpeg.output_height) {
    JSAMPROW row = out + decoder.jpeg.output_scanline * row_bytes;
    jpeg_read_scanlines(&decoder.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&decoder.jpeg);
  return true;
}

int stored_orientation(const jpeg_decompress_struct& jpeg) {
  for (jpeg_saved_marker_ptr marker = jpeg.marker_list; marker != nullptr; marker = marker->next) {
    const auto data = std::as_bytes(std::span(marker->data, marker->data_length));
    const bool exif = data.size() > 6 && std::memcmp(data.data(), "Exif\0\0", 6) == 0;
    if (exif) return exif_orientation(data);
  }
  return 1;
}

// a * b / 255, rounded.
int scaled(int a, int b) {
  const int product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

// Without a colour profile: what is left of white after ink and black. Adobe's files store the inks
// inverted.
void cmyk_to_rgb(const std::vector<uint8_t>& cmyk, bool inverted, std::vector<uint8_t>& rgb) {
  const uint8_t* in = cmyk.data();
  for (size_t i = 0; i < rgb.size(); i += 3, in += 4) {
    const int left = inverted ? in[3] : 255 - in[3];
    for (size_t c = 0; c < 3; ++c) {
      const int ink = inverted ? 255 - in[c] : in[c];
      const int value = left - scaled(ink, left);
      rgb[i + c] = static_cast<uint8_t>(value < 0 ? 0 : value);
    }
  }
}

}  // namespace

StoredImage decode_jpeg(std::span<const std::byte> bytes, const std::string& label,
                        const ImageLimits& limits) {
  Decoder decoder;
  decoder.jpeg.err = jpeg_std_error(&decoder.errors.manager);
  decoder.errors.manager.error_exit = on_error;
  decoder.errors.manager.emit_message = on_message;
  decoder.progress.progress_monitor = on_progress;
  const auto refuse = [&] { fail("{}: not a readable JPEG: {}", label, decoder.errors.message); };
  if (!read_header(decoder, bytes)) refuse();
  const int64_t width = decoder.jpeg.image_width;
  const int64_t height = decoder.jpeg.image_height;
  check_image_size(width, height, label, limits);
  if (!start(decoder)) refuse();
  const auto n_pixels = static_cast<size_t>(width * height);
  StoredImage stored;
  stored.image = {width, height, std::vector<uint8_t>(n_pixels * 3)};
  stored.orientation = stored_orientation(decoder.jpeg);
  if (decoder.jpeg.out_color_space == JCS_CMYK) {
    std::vector<uint8_t> cmyk(n_pixels * 4);
    if (!read_rows(decoder, cmyk.data(), static_cast<size_t>(width) * 4)) refuse();
    cmyk_to_rgb(cmyk, decoder.jpeg.saw_Adobe_marker != FALSE, stored.image.rgb);
  } else if (!read_rows(decoder, stored.image.rgb.data(), static_cast<size_t>(width) * 3)) {
    refuse();
  }
  return stored;
}

}  // namespace lockstep
