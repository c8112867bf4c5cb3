// Tap dumps: safetensors files that one or several ranks wrote, put together into whole tensors.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "validation/tensor_compare.h"

namespace lockstep {

// Tap names in the order in which a bug travels: pixel_values, vision_embeds, embed,
// layers.0.mixer, layers.0.mlp, layers.0.out,
// ..., final_norm; then image/, then state/ the same way, then decode/, then everything else by
// name.
struct TapOrder {
  bool operator()(const std::string& a, const std::string& b) const;
};

using TapMap = std::map<std::string, FloatTensor, TapOrder>;

struct TapDump {
  TapMap taps;
  std::vector<std::string> rank_differences;  // replicated taps whose bits differ between ranks
};

// Reads the dump that `rank_files` (one file a rank, rank 0 first) hold together. A tap with the
// metadata "shard:TAP" = "TOTAL;a:b,c:d" holds rows a..b-1, c..d-1 of dimension 0 of the whole
// tensor, in that order; the ranges of all ranks must cover 0..TOTAL-1 exactly once. Every other
// tap is replicated: all ranks must hold it with the same bits. Throws Error (exit 3) that names
// file and tap.
TapDump read_tap_dump(const std::vector<std::filesystem::path>& rank_files);

// Layer number in "…layers.N.…", or -1.
int tap_layer(const std::string& tap);

}  // namespace lockstep
