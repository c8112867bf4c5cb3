#include "engine/media/decode.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <algorithm>

#include <cmath>
#include <functional>

#include "engine/base/error.h"
#include "engine/media/data_url.h"
#include "engine/media/encode_test_util.h"

namespace lockstep {
namespace {

using namespace media_test;

Image decode(const Bytes& bytes, const ImageLimits& limits = {}) {
  return decode_image(bytes, "picture", limits);
}

std::string complaint(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const Bytes& bytes, const ImageLimits& limits = {}) {
  return complaint([&] { decode(bytes, limits); });
}

double mean_difference(const Image& a, const Image& b) {
  if (a.width != b.width || a.height != b.height) return 255.0;
  double sum = 0.0;
  for (size_t i = 0; i < a.rgb.size(); ++i) sum += std::fabs(double{1} * a.rgb[i] - b.rgb[i]);
  return sum / static_cast<double>(a.rgb.size());
}

Image grey_of(Image image, int bits = 8) {
  for (size_t i = 0; i < image.rgb.size(); i += 3) {
    const int level = image.rgb[i] >> (8 - bits);
    const auto grey = static_cast<uint8_t>(level * 255 / ((1 << bits) - 1));
    image.rgb[i] = image.rgb[i + 1] = image.rgb[i + 2] = grey;
  }
  return image;
}

TEST(DecodePng, EveryKindBecomesRgb) {
  const Image picture = test_picture(13, 9);
  for (const bool interlaced : {false, true}) {
    for (const PngKind kind :
         {PngKind::rgb, PngKind::rgba, PngKind::palette, PngKind::palette_alpha, PngKind::rgb_16}) {
      const Image image = decode(encode_png(picture, {kind, interlaced}));
      EXPECT_EQ(image.width, 13);
      EXPECT_EQ(image.rgb, picture.rgb) << static_cast<int>(kind) << interlaced;
    }
    for (const PngKind kind : {PngKind::grey, PngKind::grey_alpha}) {
      EXPECT_EQ(decode(encode_png(picture, {kind, interlaced})).rgb, grey_of(picture).rgb);
    }
    EXPECT_EQ(decode(encode_png(picture, {PngKind::grey_bits_2, interlaced})).rgb,
              grey_of(picture, 2).rgb);
  }
}

TEST(DecodeJpeg, EveryKindBecomesRgb) {
  Image picture = test_picture(48, 32);
  for (const JpegKind kind : {JpegKind::rgb, JpegKind::progressive, JpegKind::adobe_cmyk}) {
    // Chroma is stored at half the size, across sharp edges.
    EXPECT_LT(mean_difference(decode(encode_jpeg(picture, kind)), picture), 12.0)
        << static_cast<int>(kind);
  }
  const Image grey = decode(encode_jpeg(grey_of(picture), JpegKind::grey));
  EXPECT_LT(mean_difference(grey, grey_of(picture)), 2.0);
}

TEST(DecodeWebp, LosslessAndLossy) {
  const Image picture = test_picture(40, 24);
  EXPECT_EQ(decode(encode_webp(picture)).rgb, picture.rgb);
  EXPECT_LT(mean_difference(decode(encode_webp(picture, false)), picture), 12.0);
}

// The stored picture seen with orientation o, pixel by pixel from the definition: which stored
// corner is the top left of what is seen, and whether rows run along columns.
Image seen(const Image& stored, int orientation) {
  const bool swaps = orientation >= 5;
  Image result{swaps ? stored.height : stored.width, swaps ? stored.width : stored.height, {}};
  for (int64_t y = 0; y < result.height; ++y) {
    for (int64_t x = 0; x < result.width; ++x) {
      int64_t column = 0;
      int64_t row = 0;
      const int64_t right = stored.width - 1;
      const int64_t bottom = stored.height - 1;
      switch (orientation) {
        case 1:
          column = x, row = y;
          break;
        case 2:
          column = right - x, row = y;
          break;
        case 3:
          column = right - x, row = bottom - y;
          break;
        case 4:
          column = x, row = bottom - y;
          break;
        case 5:
          column = y, row = x;
          break;
        case 6:
          column = y, row = bottom - x;
          break;
        case 7:
          column = right - y, row = bottom - x;
          break;
        default:
          column = right - y, row = x;
      }
      const uint8_t* p = stored.rgb.data() + 3 * (row * stored.width + column);
      result.rgb.insert(result.rgb.end(), p, p + 3);
    }
  }
  return result;
}

TEST(DecodeOrientation, IsAppliedInEveryFormat) {
  const Image stored = test_picture(16, 24);
  const Image jpeg = decode(encode_jpeg(stored));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(decode(encode_png(stored, {PngKind::rgb, false, orientation})).rgb,
              seen(stored, orientation).rgb)
        << orientation;
    EXPECT_EQ(decode(encode_webp(stored, true, orientation)).rgb, seen(stored, orientation).rgb);
    EXPECT_EQ(decode(encode_jpeg(stored, JpegKind::rgb, orientation)).rgb,
              seen(jpeg, orientation).rgb);
  }
}

TEST(DecodeHostile, EveryTruncationIsRefused) {
  const Image picture = test_picture(20, 16);
  const Bytes files[] = {encode_png(picture), encode_jpeg(picture),
                         encode_jpeg(picture, JpegKind::progressive), encode_webp(picture),
                         encode_webp(picture, false)};
  for (const Bytes& file : files) {
    ASSERT_EQ(refusal(file), "");
    for (size_t n = 0; n < file.size(); ++n) {
      const std::string why =
          refusal({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n)});
      EXPECT_NE(why, "") << n << " of " << file.size();
      EXPECT_EQ(why.find('\n'), std::string::npos);
    }
  }
}

TEST(DecodeHostile, FlippedBitsNeverCrash) {
  const Image picture = test_picture(20, 16);
  for (const Bytes& file : {encode_png(picture), encode_jpeg(picture), encode_webp(picture)}) {
    for (size_t at = 0; at < file.size(); ++at) {
      Bytes damaged = file;
      damaged[at] ^= static_cast<std::byte>(1u << (at % 8));
      refusal(damaged);
    }
  }
}

TEST(DecodeHostile, SizesAreCheckedBeforeDecoding) {
  EXPECT_NE(refusal(png_header(30000, 30000)).find("30000 x 30000 pixels"), std::string::npos);
  EXPECT_NE(refusal(png_header(2000000000, 1)).find("2000000000 x 1 pixels"), std::string::npos);
  EXPECT_NE(refusal(png_header(0, 5)), "");
  EXPECT_NE(refusal(png_header(5, 0)), "");
  const Image picture = test_picture(20, 16);
  const ImageLimits small{.max_pixels = 319};
  for (const Bytes& file : {encode_png(picture), encode_jpeg(picture), encode_webp(picture)}) {
    EXPECT_NE(refusal(file, small).find("20 x 16 pixels"), std::string::npos);
    EXPECT_NE(refusal(file, {.max_bytes = 100}).find("more than 100"), std::string::npos);
    EXPECT_NE(refusal(file, {.max_side = 19}).find("19 a side"), std::string::npos);
  }
}

// The largest memory that this process had so far.
int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST(DecodeHostile, ABombInATextTakesLittleMemory) {
  constexpr int64_t kText = int64_t{256} << 20;
  const Image picture = test_picture(20, 16);
  const Bytes bomb = png_text_bomb(picture, kText / 258);
  const int64_t before = peak_bytes();
  EXPECT_EQ(decode(bomb).rgb, picture.rgb) << "a text changes no pixel";
  EXPECT_LT(peak_bytes() - before, kText / 4);
  // Memory that is held is seen.
  const std::vector<uint8_t> held(kText, 1);
  EXPECT_GE(peak_bytes() - before, kText / 2) << held.back();
}

// libpng would allocate what the chunk says.
TEST(DecodeHostile, AChunkLongerThanTheFileIsRefusedByItsLength) {
  Bytes png = encode_png(test_picture(20, 16), {PngKind::rgb, false, 6});
  const std::string name = "eXIf";
  const auto found =
      std::search(png.begin(), png.end(), name.begin(), name.end(),
                  [](std::byte a, char b) { return a == static_cast<std::byte>(b); });
  ASSERT_NE(found, png.end());
  *(found - 4) = std::byte{0x45};  // the highest byte of the length
  const std::string why = refusal(png);
  EXPECT_NE(why.find("says that it holds 1157627"), std::string::npos) << why;
}

TEST(DecodeHostile, OtherFilesAndAnimationsAreRefused) {
  const Image picture = test_picture(20, 16);
  EXPECT_NE(refusal(encode_animated_webp(picture)).find("animation"), std::string::npos);
  Bytes apng = encode_png(picture);
  // An acTL chunk (its checksum is not looked at before the refusal) right after IHDR.
  const char control[] =
      "\0\0\0\x08"
      "acTL"
      "\0\0\0\x02\0\0\0\0"
      "\0\0\0\0";
  const auto* from = reinterpret_cast<const std::byte*>(control);
  apng.insert(apng.begin() + 33, from, from + 20);
  EXPECT_NE(refusal(apng).find("animation"), std::string::npos);
  EXPECT_NE(refusal({}).find("empty"), std::string::npos);
  const char gif[] = "GIF89a\x01\0\x01\0";
  const auto* bytes = reinterpret_cast<const std::byte*>(gif);
  EXPECT_NE(refusal({bytes, bytes + 10}).find("not a PNG, JPEG or WebP"), std::string::npos);
}

TEST(DataUrl, ReadsBase64) {
  const char text[] = "Many hands";
  const auto* letters = reinterpret_cast<const std::byte*>(text);
  EXPECT_EQ(encode_data_url({letters, 10}), "data:image/*;base64,TWFueSBoYW5kcw==");
  EXPECT_EQ(decode_data_url("data:image/png;base64,TWFueSBoYW5kcw==", "part", 1000),
            Bytes(letters, letters + 10));
  for (size_t n : {1u, 2u, 3u, 4u, 100u}) {
    Bytes bytes;
    for (size_t i = 0; i < n; ++i) bytes.push_back(static_cast<std::byte>(i * 37));
    const std::string url = encode_data_url(bytes);
    EXPECT_EQ(decode_data_url(url, "part", 1000), bytes);
    std::string bare = url;
    while (bare.back() == '=') bare.pop_back();
    EXPECT_EQ(decode_data_url(bare, "part", 1000), bytes);
  }
}

TEST(DataUrl, RefusesEverythingElse) {
  const auto refused = [](const std::string& url, size_t max_bytes = 1000) {
    return complaint([&] { decode_data_url(url, "part", max_bytes); });
  };
  EXPECT_NE(refused("http://example.org/a.png").find("not fetched"), std::string::npos);
  EXPECT_NE(refused("file:///etc/passwd").find("not fetched"), std::string::npos);
  EXPECT_NE(refused(""), "");
  EXPECT_NE(refused("data:image/png;base64").find("comma"), std::string::npos);
  EXPECT_NE(refused("data:text/plain;base64,AAAA").find("not an image"), std::string::npos);
  EXPECT_NE(refused("data:image/png,AAAA").find("not base64"), std::string::npos);
  EXPECT_NE(refused("data:image/png;base64,AA*A").find("not base64"), std::string::npos);
  EXPECT_NE(refused("data:image/png;base64,AAAAA").find("cut short"), std::string::npos);
  EXPECT_NE(refused("data:image/png;base64,AAA==").find("cut short"), std::string::npos);
  EXPECT_NE(refused("data:image/png;base64," + std::string(4000, 'A'), 100).find("larger"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
