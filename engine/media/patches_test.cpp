#include "engine/media/patches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "engine/media/data_url.h"
#include "engine/media/encode_test_util.h"

namespace lockstep {
namespace {

using namespace media_test;
using Json = nlohmann::json;

constexpr int64_t kMin = 4096;
constexpr int64_t kMax = 1048576;

std::pair<int64_t, int64_t> size_of(int64_t width, int64_t height, int64_t min = kMin,
                                    int64_t max = kMax) {
  const ImageSize size = model_image_size({width, height}, 32, min, max, "picture");
  return {size.width, size.height};
}

using Pair = std::pair<int64_t, int64_t>;

TEST(ModelImageSize, RoundsHalfToEvenAndFitsTheArea) {
  EXPECT_EQ(size_of(64, 64), Pair(64, 64));
  EXPECT_EQ(size_of(100, 71), Pair(96, 64));
  EXPECT_EQ(size_of(80, 112), Pair(64, 128)) << "2.5 and 3.5 both go to the even neighbour";
  EXPECT_EQ(size_of(16, 400), Pair(32, 320)) << "half of one rounds to none, the area is raised";
  EXPECT_EQ(size_of(1, 1), Pair(64, 64));
  EXPECT_EQ(size_of(4000, 3000), Pair(1152, 864));
  EXPECT_EQ(size_of(4, 800), Pair(32, 928)) << "200 to 1 is still taken";
  EXPECT_THROW(size_of(1, 5000), Error);
  EXPECT_THROW(size_of(5000, 24), Error);
  for (int64_t width = 1; width < 3000; width += 131) {
    for (int64_t height = width; height < std::min<int64_t>(3000, 200 * width); height += 57) {
      const auto [w, h] = size_of(width, height);
      ASSERT_EQ(w % 32 + h % 32, 0);
      ASSERT_GE(w * h, kMin);
      ASSERT_LE(w * h, kMax + 32 * 5000) << "a side is never below one block";
    }
  }
}

TEST(ResizeBicubic, KeepsAFlatPictureAndTheSameSize) {
  Image flat{37, 23, std::vector<uint8_t>(3 * 37 * 23, 200)};
  for (const ImageSize size : {ImageSize{64, 64}, ImageSize{32, 16}, ImageSize{37, 96}}) {
    const Image out = resize_bicubic(flat, size);
    EXPECT_EQ(out.width, size.width);
    EXPECT_TRUE(std::all_of(out.rgb.begin(), out.rgb.end(), [](uint8_t v) { return v == 200; }));
  }
  const Image picture = test_picture(20, 10);
  EXPECT_EQ(resize_bicubic(picture, {20, 10}).rgb, picture.rgb);
}

// The filter in float64 with 8-bit rounding between the passes: 16-bit weights may differ by a
// code.
double keys(double x) {
  x = std::fabs(x);
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0.0;
}

Image oracle_pass(const Image& in, int64_t n_out, bool columns) {
  const int64_t n_in = columns ? in.height : in.width;
  Image out{columns ? in.width : n_out, columns ? n_out : in.height, {}};
  out.rgb.resize(static_cast<size_t>(3 * out.width * out.height));
  const double scale = static_cast<double>(n_in) / static_cast<double>(n_out);
  const double stretch = std::max(1.0, scale);
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x) {
      const double centre = (static_cast<double>(columns ? y : x) + 0.5) * scale;
      double sums[3] = {0, 0, 0};
      double total = 0;
      for (int64_t i = 0; i < n_in; ++i) {
        const double weight = keys((static_cast<double>(i) + 0.5 - centre) / stretch);
        const int64_t at = columns ? i * in.width + x : y * in.width + i;
        for (int64_t c = 0; c < 3; ++c) sums[c] += weight * in.rgb[static_cast<size_t>(3 * at + c)];
        total += weight;
      }
      for (int64_t c = 0; c < 3; ++c) {
        out.rgb[static_cast<size_t>(3 * (y * out.width + x) + c)] =
            static_cast<uint8_t>(std::clamp(std::floor(sums[c] / total + 0.5), 0.0, 255.0));
      }
    }
  }
  return out;
}

TEST(ResizeBicubic, IsWithinACodeOfTheExactFilter) {
  for (const auto& [from, to] : std::vector<std::pair<Pair, Pair>>{{{100, 71}, {96, 64}},
                                                                   {{20, 33}, {64, 96}},
                                                                   {{200, 90}, {64, 32}},
                                                                   {{64, 50}, {64, 32}}}) {
    const Image picture = test_picture(from.first, from.second, 7);
    const Image got = resize_bicubic(picture, {to.first, to.second});
    const Image want = oracle_pass(oracle_pass(picture, to.first, false), to.second, true);
    size_t n_other = 0;
    for (size_t i = 0; i < got.rgb.size(); ++i) {
      const int apart = std::abs(got.rgb[i] - want.rgb[i]);
      ASSERT_LE(apart, 1);
      n_other += apart == 0 ? 0 : 1;
    }
    EXPECT_LE(n_other * 200, got.rgb.size()) << "more than half a percent";
  }
}

TEST(Patches, ComeInMergeOrder) {
  PreprocessorConfig config;
  config.min_pixels = kMin;
  const Image picture = test_picture(96, 64);
  const ImagePatches patches = make_patches(picture, config, "picture");
  EXPECT_EQ(patches.grid_height, 4);
  EXPECT_EQ(patches.grid_width, 6);
  EXPECT_EQ(patches.n_tokens(), 6);
  // Block rows, block columns, rows and columns inside, then channel, time, y, x.
  const float* value = patches.values.data();
  for (int by = 0; by < 2; ++by) {
    for (int bx = 0; bx < 3; ++bx) {
      for (int py = 0; py < 2; ++py) {
        for (int px = 0; px < 2; ++px) {
          for (int i = 0; i < 1536; ++i, ++value) {
            const int x = i % 16, y = i / 16 % 16, c = i / 512;
            const int at = ((by * 2 + py) * 16 + y) * 96 + (bx * 2 + px) * 16 + x;
            const float code = picture.rgb[static_cast<size_t>(3 * at + c)];
            ASSERT_EQ(*value, (code - 127.5f) / 127.5f);
          }
        }
      }
    }
  }
}

TEST(Patches, TheDigestTellsPicturesApart) {
  PreprocessorConfig config;
  config.min_pixels = kMin;
  Image picture = test_picture(64, 96);
  const uint64_t digest = make_patches(picture, config, "a").digest;
  EXPECT_EQ(make_patches(picture, config, "b").digest, digest);
  ++picture.rgb[100];
  EXPECT_NE(make_patches(picture, config, "a").digest, digest);
}

TEST(Preprocessor, ReadsAndRefuses) {
  const TempDir folder;
  const auto load = [&](const std::string& json) {
    write_file_atomically(folder.path() / "preprocessor_config.json", json);
    return load_preprocessor_config(folder.path());
  };
  const PreprocessorConfig config =
      load_preprocessor_config(std::filesystem::path(LOCKSTEP_GOLDEN_DIR) / "tiny-qwen3_5");
  EXPECT_EQ(config.min_pixels, 4096);
  EXPECT_EQ(config.max_pixels, 1048576);
  EXPECT_EQ(load("{}").max_pixels, 16777216);
  EXPECT_EQ(load(R"({"min_pixels": 5, "max_pixels": 9})").max_pixels, 9);
  for (const char* bad :
       {"[]", "{", R"({"patch_size": 0})", R"({"image_mean": [1, 2]})",
        R"({"image_std": [0, 1, 1]})", R"({"resample": 2})", R"({"do_resize": false})",
        R"({"rescale_factor": 0})", R"({"size": {"shortest_edge": 10, "longest_edge": 5}})"}) {
    EXPECT_THROW(load(bad), Error) << bad;
  }
  EXPECT_THROW(load_preprocessor_config(folder.path() / "none"), Error);
}

// The pictures that golden/recipe/resize_fixture.py draws.
Image fixture_picture(int64_t width, int64_t height, uint32_t seed) {
  Image image{width, height, {}};
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      for (uint32_t c = 0; c < 3; ++c) {
        uint32_t noise = x * 73856093u + y * 19349663u + (c + seed) * 83492791u;
        noise = (noise ^ noise >> 15) * 0x2c1b3c6du;
        const uint32_t slope = (x * 3 + y * 5 + c * 60) % 256;
        const uint32_t edge = (x / 9 + y / 7) % 2 == 0 ? 255 : 0;
        image.rgb.push_back(static_cast<uint8_t>((slope * 2 + (noise >> 12 & 255u) + edge) / 4));
      }
    }
  }
  return image;
}

ImagePatches fixture_patches(const Json& entry, const PreprocessorConfig& config) {
  const std::string name = entry["name"];
  if (entry.contains("drawn")) {
    const Json& drawn = entry["drawn"];
    return make_patches(fixture_picture(drawn[0], drawn[1], drawn[2]), config, name);
  }
  const std::string url = "data:image/x;base64," + entry["file"].get<std::string>();
  return read_image_patches(decode_data_url(url, name, size_t{1} << 26), config, name);
}

std::vector<int> codes_of(const ImagePatches& patches) {
  std::vector<int> codes;
  for (const float value : patches.values) {
    codes.push_back(static_cast<int>(std::lround((value + 1.0f) * 127.5f)));
  }
  return codes;
}

std::string checksum(const std::vector<int>& codes) {
  uint64_t sum = 0;
  for (const int code : codes) sum = sum * 1099511628211u + static_cast<uint64_t>(code);
  return std::to_string(sum);
}

// What Hugging Face's processor made of the same pictures.
TEST(ResizeFixture, CodesAgreeWithTheReferenceProcessor) {
  const std::filesystem::path file =
      std::filesystem::path(LOCKSTEP_GOLDEN_DIR) / "vision" / "resize-fixture.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no fixture in golden/vision";
  const Json fixture = Json::parse(read_text_file(file));
  PreprocessorConfig config;
  config.min_pixels = fixture["min_pixels"];
  config.max_pixels = fixture["max_pixels"];
  ASSERT_GE(fixture["cases"].size(), 50u);
  size_t n_values = 0;
  size_t n_other = 0;
  size_t n_exact = 0;
  for (const Json& entry : fixture["cases"]) {
    const std::string name = entry["name"];
    const ImagePatches patches = fixture_patches(entry, config);
    ASSERT_EQ(patches.grid_height, entry["grid"][1].get<int64_t>()) << name;
    ASSERT_EQ(patches.grid_width, entry["grid"][2].get<int64_t>()) << name;
    const std::vector<int> codes = codes_of(patches);
    size_t index = 0;
    for (const Json& code : entry["codes"]) {
      const int apart = std::abs(codes.at(index) - code.get<int>());
      ASSERT_LE(apart, entry["lossy"].get<bool>() ? 2 : 1) << name << " value " << index;
      n_other += apart == 0 ? 0 : 1;
      ++n_values;
      index += entry["stride"].get<size_t>();
    }
    n_exact += checksum(codes) == entry["checksum"].get<std::string>() ? 1 : 0;
  }
  std::printf("%zu of %zu pictures exact, %zu of %zu sampled codes differ\n", n_exact,
              fixture["cases"].size(), n_other, n_values);
  EXPECT_LE(n_other * 200, n_values) << "more than half a percent of the codes differ";
}

}  // namespace
}  // namespace lockstep
