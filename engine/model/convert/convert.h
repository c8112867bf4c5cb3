// Turns a checkpoint of any readable format into one of a chosen format.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/companion_files.h"

namespace lockstep {

// Which storage format each class of matrix gets. Matrices of no class (lm_head, embedding, mtp.fc,
// in_proj_a/b, vision) become BF16, small tensors stay as they are: what published checkpoints do.
struct ConvertTarget {
  std::string_view name;
  std::string_view mlp;
  std::string_view attention;  // self_attn and linear_attn projections
  bool mtp;                    // the MTP layer's matrices too
};

const std::vector<ConvertTarget>& convert_targets();

// By name; null when unknown.
const ConvertTarget* find_convert_target(const std::string& name);

// The storage format of matrix `base` in this target.
std::string_view target_format(const ConvertTarget& target, const std::string& base);

// The text of a config.json with the target's quantization_config in place of its own.
std::string converted_config(const std::string& config_json, const ConvertTarget& target,
                             const std::vector<std::string>& matrices);

// |W' - W| / |W| over all matrices of a class that were encoded anew.
struct ConvertError {
  std::string tensor_class;
  std::string format;
  int64_t n_encoded = 0;
  int64_t n_copied = 0;  // were in this format already: same bits
  double relative_error = 0.0;
  double worst = 0.0;  // largest relative error of one matrix
  std::string worst_matrix;
};

// Writes `out`. Throws Error that names a matrix which the target cannot hold, before anything is
// written.
std::vector<ConvertError> convert_checkpoint(const Checkpoint& source,
                                             const CompanionFiles& companions,
                                             const ConvertTarget& target,
                                             const std::filesystem::path& out);

}  // namespace lockstep
