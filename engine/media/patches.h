// From a picture to what the vision tower reads: patches in merge order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/media/image.h"
#include "engine/media/resize.h"

namespace lockstep {

// preprocessor_config.json of a checkpoint.
struct PreprocessorConfig {
  int64_t patch_size = 16;
  int64_t temporal_patch_size = 2;
  int64_t merge_size = 2;
  int64_t min_pixels = 65536;     // size.shortest_edge: an area, whatever its name says
  int64_t max_pixels = 16777216;  // size.longest_edge
  float mean[3] = {0.5f, 0.5f, 0.5f};
  float std[3] = {0.5f, 0.5f, 0.5f};
  double rescale_factor = 1.0 / 255.0;

  int64_t patch_width() const { return 3 * temporal_patch_size * patch_size * patch_size; }
};

// Reads DIR/preprocessor_config.json. Throws Error that names the file and the key.
PreprocessorConfig load_preprocessor_config(const std::filesystem::path& model_dir);

// One picture of a prompt.
struct ImagePatches {
  int64_t grid_height = 0;  // patches from top to bottom, a multiple of merge_size
  int64_t grid_width = 0;   // patches from left to right, a multiple of merge_size
  int64_t merge_size = 0;
  std::vector<float> values;  // [grid_height * grid_width, patch_width]
  uint64_t digest = 0;        // of grid and values: what the prefix cache knows the picture by

  int64_t n_patches() const { return grid_height * grid_width; }
  // Positions that the picture takes in the prompt.
  int64_t n_tokens() const { return n_patches() / (merge_size * merge_size); }
};

// Resizes and normalises: (code - mean/rescale) / (std/rescale) in float32. Patches come block by
// block of merge_size x merge_size, row by row, rows inside the block the same way; the values of
// one patch are [channel, time, y, x], the picture standing at every time step.
ImagePatches make_patches(const Image& image, const PreprocessorConfig& config,
                          const std::string& label);

// decode_image and make_patches.
ImagePatches read_image_patches(std::span<const std::byte> bytes, const PreprocessorConfig& config,
                                const std::string& label, const ImageLimits& limits = {});

}  // namespace lockstep
