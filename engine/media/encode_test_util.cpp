#include "engine/media/encode_test_util.h"

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>

// jpeglib.h wants size_t and FILE declared before it.
#include <jpeglib.h>

#include <png.h>
#include <webp/encode.h>
#include <webp/mux.h>

#include "engine/base/error.h"
#include "engine/base/philox.h"

namespace lockstep::media_test {
namespace {

void append(Bytes& bytes, const void* data, size_t n) {
  const auto* from = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), from, from + n);
}

void on_png_write(png_structp png, png_bytep data, size_t n) {
  append(*static_cast<Bytes*>(png_get_io_ptr(png)), data, n);
}

struct Palette {
  std::vector<png_color> colours;
  std::vector<uint8_t> indices;
};

Palette make_palette(const Image& image) {
  Palette palette;
  std::map<uint32_t, uint8_t> known;
  for (size_t i = 0; i < image.rgb.size(); i += 3) {
    const uint8_t* p = image.rgb.data() + i;
    const uint32_t colour = p[0] << 16 | p[1] << 8 | p[2];
    const auto [at, fresh] = known.emplace(colour, static_cast<uint8_t>(palette.colours.size()));
    if (fresh) palette.colours.push_back({p[0], p[1], p[2]});
    LOCKSTEP_CHECK(palette.colours.size() <= 256);
    palette.indices.push_back(at->second);
  }
  return palette;
}

// One row as the kind stores it.
std::vector<uint8_t> png_row(const Image& image, const Palette& palette, PngKind kind, int64_t y) {
  std::vector<uint8_t> row;
  for (int64_t x = 0; x < image.width; ++x) {
    const int64_t at = y * image.width + x;
    const uint8_t* p = image.rgb.data() + 3 * at;
    const auto alpha = static_cast<uint8_t>(37 * (x + y));
    switch (kind) {
      case PngKind::rgb:
        row.insert(row.end(), p, p + 3);
        break;
      case PngKind::rgba:
        row.insert(row.end(), {p[0], p[1], p[2], alpha});
        break;
      case PngKind::grey:
        row.push_back(p[0]);
        break;
      case PngKind::grey_alpha:
        row.insert(row.end(), {p[0], alpha});
        break;
      case PngKind::grey_bits_2:
        if (x % 4 == 0) row.push_back(0);
        row.back() = static_cast<uint8_t>(row.back() | (p[0] >> 6) << (6 - 2 * (x % 4)));
        break;
      case PngKind::rgb_16:
        for (int c = 0; c < 3; ++c) row.insert(row.end(), {p[c], static_cast<uint8_t>(200 + c)});
        break;
      default:
        row.push_back(palette.indices[static_cast<size_t>(at)]);
    }
  }
  return row;
}

int png_colour_type(PngKind kind) {
  switch (kind) {
    case PngKind::rgba:
      return PNG_COLOR_TYPE_RGBA;
    case PngKind::grey:
    case PngKind::grey_bits_2:
      return PNG_COLOR_TYPE_GRAY;
    case PngKind::grey_alpha:
      return PNG_COLOR_TYPE_GRAY_ALPHA;
    case PngKind::palette:
    case PngKind::palette_alpha:
      return PNG_COLOR_TYPE_PALETTE;
    default:
      return PNG_COLOR_TYPE_RGB;
  }
}

}  // namespace

Image test_picture(int64_t width, int64_t height, uint64_t seed) {
  PhiloxStream random(seed);
  Image image{width, height, std::vector<uint8_t>(static_cast<size_t>(3 * width * height))};
  const uint32_t shift = random.next_below(97);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      uint8_t* p = image.rgb.data() + 3 * (y * width + x);
      const bool edge = (x / 5 + y / 7) % 3 == 0;
      p[0] = static_cast<uint8_t>((3 * x + shift) % 256);
      p[1] = static_cast<uint8_t>((5 * y + 40) % 256);
      p[2] = static_cast<uint8_t>(edge ? 220 : 30 + (x + y) % 60);
    }
  }
  return image;
}

Bytes encode_png(const Image& image, const PngOptions& options) {
  Bytes bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &bytes, on_png_write, nullptr);
  const int depth = options.kind == PngKind::rgb_16        ? 16
                    : options.kind == PngKind::grey_bits_2 ? 2
                                                           : 8;
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), depth, png_colour_type(options.kind),
               options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  Palette palette;
  if (options.kind == PngKind::palette || options.kind == PngKind::palette_alpha) {
    palette = make_palette(image);
    png_set_PLTE(png, info, palette.colours.data(), static_cast<int>(palette.colours.size()));
    png_byte alpha[3] = {0, 128, 255};
    if (options.kind == PngKind::palette_alpha) png_set_tRNS(png, info, alpha, 3, nullptr);
  }
  std::string exif = exif_block(options.orientation, true);
  if (options.orientation != 0) {
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()),
                   reinterpret_cast<png_bytep>(exif.data()));
  }
  std::vector<std::vector<uint8_t>> rows;
  std::vector<png_bytep> pointers;
  for (int64_t y = 0; y < image.height; ++y) {
    rows.push_back(png_row(image, palette, options.kind, y));
  }
  for (auto& row : rows) pointers.push_back(row.data());
  png_write_info(png, info);
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

Bytes encode_jpeg(const Image& image, JpegKind kind, int orientation) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* buffer = nullptr;
  unsigned long n_bytes = 0;
  jpeg_mem_dest(&jpeg, &buffer, &n_bytes);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.input_components = kind == JpegKind::adobe_cmyk ? 4 : 3;
  jpeg.in_color_space = kind == JpegKind::adobe_cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  if (kind == JpegKind::grey) jpeg_set_colorspace(&jpeg, JCS_GRAYSCALE);
  if (kind == JpegKind::progressive) jpeg_simple_progression(&jpeg);
  jpeg_set_quality(&jpeg, 97, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  if (orientation != 0) {
    const std::string exif = std::string("Exif\0\0", 6) + exif_block(orientation, false);
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  for (int64_t y = 0; y < image.height; ++y) {
    std::vector<uint8_t> row;
    for (int64_t x = 0; x < image.width; ++x) {
      const uint8_t* p = image.rgb.data() + 3 * (y * image.width + x);
      row.insert(row.end(), p, p + 3);
      // Inverted ink 255 - (255 - colour) is the colour itself, inverted black 255 is none.
      if (kind == JpegKind::adobe_cmyk) row.push_back(255);
    }
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&jpeg, &pointer, 1);
  }
  jpeg_finish_compress(&jpeg);
  Bytes bytes;
  append(bytes, buffer, n_bytes);
  jpeg_destroy_compress(&jpeg);
  std::free(buffer);
  return bytes;
}

Bytes encode_webp(const Image& image, bool lossless, int orientation) {
  uint8_t* out = nullptr;
  const int width = static_cast<int>(image.width);
  const int height = static_cast<int>(image.height);
  const size_t n = lossless
                       ? WebPEncodeLosslessRGB(image.rgb.data(), width, height, 3 * width, &out)
                       : WebPEncodeRGB(image.rgb.data(), width, height, 3 * width, 95.0f, &out);
  LOCKSTEP_CHECK(n > 0);
  Bytes bytes;
  if (orientation == 0) {
    append(bytes, out, n);
  } else {
    WebPMux* mux = WebPMuxNew();
    const WebPData picture{out, n};
    const std::string exif = exif_block(orientation, false);
    const WebPData block{reinterpret_cast<const uint8_t*>(exif.data()), exif.size()};
    WebPMuxSetImage(mux, &picture, 1);
    WebPMuxSetChunk(mux, "EXIF", &block, 1);
    WebPData whole;
    LOCKSTEP_CHECK(WebPMuxAssemble(mux, &whole) == WEBP_MUX_OK);
    append(bytes, whole.bytes, whole.size);
    WebPDataClear(&whole);
    WebPMuxDelete(mux);
  }
  WebPFree(out);
  return bytes;
}

Bytes encode_animated_webp(const Image& image) {
  WebPAnimEncoderOptions options;
  LOCKSTEP_CHECK(WebPAnimEncoderOptionsInit(&options) != 0);
  const int width = static_cast<int>(image.width);
  WebPAnimEncoder* encoder = WebPAnimEncoderNew(width, static_cast<int>(image.height), &options);
  for (int frame = 0; frame < 2; ++frame) {
    Image shown = image;
    if (frame == 1) std::fill(shown.rgb.begin(), shown.rgb.end(), uint8_t{90});
    WebPPicture picture;
    LOCKSTEP_CHECK(WebPPictureInit(&picture) != 0);
    picture.width = width;
    picture.height = static_cast<int>(image.height);
    WebPPictureImportRGB(&picture, shown.rgb.data(), 3 * width);
    LOCKSTEP_CHECK(WebPAnimEncoderAdd(encoder, &picture, 100 * frame, nullptr) != 0);
    WebPPictureFree(&picture);
  }
  WebPAnimEncoderAdd(encoder, nullptr, 200, nullptr);
  WebPData whole;
  WebPDataInit(&whole);
  LOCKSTEP_CHECK(WebPAnimEncoderAssemble(encoder, &whole) != 0);
  Bytes bytes;
  append(bytes, whole.bytes, whole.size);
  WebPDataClear(&whole);
  WebPAnimEncoderDelete(encoder);
  return bytes;
}

std::string exif_block(int orientation, bool big_endian) {
  const auto value = static_cast<char>(orientation);
  if (big_endian) {
    return std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19) + value +
           std::string(6, '\0');
  }
  return std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18) + value +
         std::string(7, '\0');
}

namespace {

void put_big_endian(uint32_t value, std::byte* out) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(value >> (24 - 8 * i));
}

// Of a chunk's name and data, bit by bit.
uint32_t png_checksum(std::span<const std::byte> bytes) {
  uint32_t crc = 0xffffffffu;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1u) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

// A zlib stream of 1 + 258 * n_matches zeros: one literal, then matches of the longest length at
// distance 1, in the fixed code.
Bytes deflated_zeros(uint32_t n_matches) {
  Bytes out = {std::byte{0x78}, std::byte{0x01}};
  uint32_t held = 0;
  int n_held = 0;
  const auto put_bit = [&](uint32_t bit) {
    held |= bit << n_held;
    if (++n_held < 8) return;
    out.push_back(static_cast<std::byte>(held));
    held = 0;
    n_held = 0;
  };
  const auto put_code = [&](uint32_t code, int n_bits) {  // the highest bit first
    for (int i = n_bits - 1; i >= 0; --i) put_bit(code >> i & 1u);
  };
  put_code(0b110, 3);  // last block, fixed code
  put_code(0b00110000, 8);
  for (uint32_t i = 0; i < n_matches; ++i) put_code(0b1100010100000, 13);
  put_code(0, 7);
  while (n_held != 0) put_bit(0);
  const auto n_zeros = static_cast<uint32_t>((1 + uint64_t{258} * n_matches) % 65521);
  out.resize(out.size() + 4);
  put_big_endian(n_zeros << 16 | 1u, out.data() + out.size() - 4);
  return out;
}

}  // namespace

Bytes png_header(uint32_t width, uint32_t height) {
  const Image one{1, 1, {1, 2, 3}};
  Bytes bytes = encode_png(one);
  put_big_endian(width, bytes.data() + 16);
  put_big_endian(height, bytes.data() + 20);
  put_big_endian(png_checksum(std::span(bytes).subspan(12, 17)), bytes.data() + 29);
  return bytes;
}

Bytes png_text_bomb(const Image& image, uint32_t n_matches) {
  Bytes chunk(8);
  for (const char c : std::string("k\0\0", 3)) chunk.push_back(static_cast<std::byte>(c));
  const Bytes zeros = deflated_zeros(n_matches);
  chunk.insert(chunk.end(), zeros.begin(), zeros.end());
  put_big_endian(static_cast<uint32_t>(chunk.size() - 8), chunk.data());
  std::memcpy(chunk.data() + 4, "zTXt", 4);
  const uint32_t checksum = png_checksum(std::span(chunk).subspan(4));
  chunk.resize(chunk.size() + 4);
  put_big_endian(checksum, chunk.data() + chunk.size() - 4);
  Bytes bytes = encode_png(image);
  bytes.insert(bytes.begin() + 33, chunk.begin(), chunk.end());
  return bytes;
}

}  // namespace lockstep::media_test
