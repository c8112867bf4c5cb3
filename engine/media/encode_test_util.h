// Writes small pictures of every kind for the tests, with the libraries' own encoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/media/image.h"

namespace lockstep::media_test {

using Bytes = std::vector<std::byte>;

// Smooth colours with a few sharp edges, so that lossy formats stay close.
Image test_picture(int64_t width, int64_t height, uint64_t seed = 1);

enum class PngKind { rgb, rgba, grey, grey_alpha, palette, palette_alpha, grey_bits_2, rgb_16 };

struct PngOptions {
  PngKind kind = PngKind::rgb;
  bool interlaced = false;
  int orientation = 0;  // 0: no eXIf chunk
};
// grey kinds store the red channel; palettes hold up to 256 colours of the picture.
Bytes encode_png(const Image& image, const PngOptions& options = {});

enum class JpegKind { rgb, grey, adobe_cmyk, progressive };
// adobe_cmyk stores ink = 255 - colour and no black, inverted as Adobe does.
Bytes encode_jpeg(const Image& image, JpegKind kind = JpegKind::rgb, int orientation = 0);

Bytes encode_webp(const Image& image, bool lossless = true, int orientation = 0);
Bytes encode_animated_webp(const Image& image);

// A TIFF block with one orientation tag.
std::string exif_block(int orientation, bool big_endian);

// A PNG whose header says width x height and that holds nothing else.
Bytes png_header(uint32_t width, uint32_t height);

// The picture with a compressed text that unpacks to 258 * n_matches zeros, from 1.6 bytes each.
Bytes png_text_bomb(const Image& image, uint32_t n_matches);

}  // namespace lockstep::media_test
