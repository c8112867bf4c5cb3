#include "engine/media/patches.h"

#include <array>
#include <nlohmann/json.hpp>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/media/decode.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxPatchSize = 256;
constexpr int kBicubic = 3;  // Pillow's number of the filter

void read_integer(const Json& json, const char* key, int64_t low, int64_t high,
                  const std::string& file, int64_t& value) {
  if (!json.contains(key) || json[key].is_null()) return;
  const bool valid = json[key].is_number_integer() && json[key] >= low && json[key] <= high;
  if (!valid) fail("{}: {} must be an integer in [{}, {}]", file, key, low, high);
  value = json[key].get<int64_t>();
}

void read_triple(const Json& json, const char* key, const std::string& file, float* values) {
  if (!json.contains(key) || json[key].is_null()) return;
  const Json& list = json[key];
  bool valid = list.is_array() && list.size() == 3;
  for (size_t c = 0; valid && c < 3; ++c) {
    valid = list[c].is_number();
    if (valid) values[c] = list[c].get<float>();
  }
  if (!valid) fail("{}: {} must be three numbers", file, key);
}

void refuse_switched_off(const Json& json, const char* key, const std::string& file) {
  if (json.contains(key) && json[key].is_boolean() && !json[key].get<bool>()) {
    fail("{}: {} false is not supported", file, key);
  }
}

// The codes 0 to 255 as the tower sees them, one table a channel.
std::array<std::array<float, 256>, 3> normalised_codes(const PreprocessorConfig& config) {
  std::array<std::array<float, 256>, 3> table{};
  const auto white = static_cast<float>(1.0 / config.rescale_factor);
  for (size_t c = 0; c < 3; ++c) {
    for (size_t code = 0; code < 256; ++code) {
      table[c][code] =
          (static_cast<float>(code) - config.mean[c] * white) / (config.std[c] * white);
    }
  }
  return table;
}

uint64_t digest_of(const ImagePatches& patches) {
  const int64_t grid[2] = {patches.grid_height, patches.grid_width};
  return digest64(std::as_bytes(std::span(patches.values)),
                  digest64(std::as_bytes(std::span(grid))));
}

}  // namespace

PreprocessorConfig load_preprocessor_config(const std::filesystem::path& model_dir) {
  const std::string file = (model_dir / "preprocessor_config.json").string();
  const Json json = Json::parse(read_text_file(file), nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail("{}: is not a JSON object", file);
  PreprocessorConfig config;
  read_integer(json, "patch_size", 1, kMaxPatchSize, file, config.patch_size);
  read_integer(json, "temporal_patch_size", 1, 16, file, config.temporal_patch_size);
  read_integer(json, "merge_size", 1, 16, file, config.merge_size);
  constexpr int64_t kMaxArea = int64_t{1} << 32;
  read_integer(json, "min_pixels", 1, kMaxArea, file, config.min_pixels);
  read_integer(json, "max_pixels", 1, kMaxArea, file, config.max_pixels);
  if (json.contains("size") && json["size"].is_object()) {
    read_integer(json["size"], "shortest_edge", 1, kMaxArea, file, config.min_pixels);
    read_integer(json["size"], "longest_edge", 1, kMaxArea, file, config.max_pixels);
  }
  if (config.min_pixels > config.max_pixels) {
    fail("{}: size.shortest_edge {} is above size.longest_edge {}", file, config.min_pixels,
         config.max_pixels);
  }
  read_triple(json, "image_mean", file, config.mean);
  read_triple(json, "image_std", file, config.std);
  for (const float std : config.std) {
    if (!(std > 0.0f)) fail("{}: image_std must be above 0", file);
  }
  if (json.contains("rescale_factor") && json["rescale_factor"].is_number()) {
    config.rescale_factor = json["rescale_factor"].get<double>();
    if (!(config.rescale_factor > 0.0)) fail("{}: rescale_factor must be above 0", file);
  }
  int64_t resample = kBicubic;
  read_integer(json, "resample", kBicubic, kBicubic, file, resample);
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"}) {
    refuse_switched_off(json, key, file);
  }
  return config;
}

ImagePatches make_patches(const Image& image, const PreprocessorConfig& config,
                          const std::string& label) {
  const int64_t patch = config.patch_size;
  const int64_t merge = config.merge_size;
  const ImageSize size = model_image_size({image.width, image.height}, patch * merge,
                                          config.min_pixels, config.max_pixels, label);
  const Image sized = resize_bicubic(image, size);
  const auto codes = normalised_codes(config);
  ImagePatches patches;
  patches.grid_height = size.height / patch;
  patches.grid_width = size.width / patch;
  patches.merge_size = merge;
  patches.values.resize(static_cast<size_t>(patches.n_patches() * config.patch_width()));
  const int64_t blocks_across = patches.grid_width / merge;
  float* out = patches.values.data();
  for (int64_t n = 0; n < patches.n_patches(); ++n) {
    const int64_t block = n / (merge * merge);
    const int64_t inside = n % (merge * merge);
    const int64_t top = (block / blocks_across * merge + inside / merge) * patch;
    const int64_t left = (block % blocks_across * merge + inside % merge) * patch;
    for (size_t c = 0; c < 3; ++c) {
      for (int64_t t = 0; t < config.temporal_patch_size; ++t) {
        for (int64_t y = 0; y < patch; ++y) {
          const uint8_t* in = sized.rgb.data() + 3 * ((top + y) * size.width + left) + c;
          for (int64_t x = 0; x < patch; ++x) *out++ = codes[c][in[3 * x]];
        }
      }
    }
  }
  patches.digest = digest_of(patches);
  return patches;
}

ImagePatches read_image_patches(std::span<const std::byte> bytes, const PreprocessorConfig& config,
                                const std::string& label, const ImageLimits& limits) {
  return make_patches(decode_image(bytes, label, limits), config, label);
}

}  // namespace lockstep
