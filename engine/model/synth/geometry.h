// Named geometries for synthetic checkpoints, and the tensors that a geometry has.
#pragma once

#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/convert/convert.h"
#include "engine/model/safetensors.h"

namespace lockstep {

// config.json of a named geometry ("qwen3.8-27b", or "qwen3.8-27b-narrow" with the same layers and
// tensor names but small widths), or the text of the file that `geometry` names. Throws Error for
// neither.
std::string geometry_config(const std::string& geometry);

// One matrix or small tensor of the model in its plain form.
struct ModelTensor {
  std::string name;  // canonical; of a matrix without ".weight"
  std::vector<int64_t> shape;
  bool is_matrix = false;  // two dimensions, and formats may store it as several tensors
};

// Every tensor of the geometry: text, MTP, vision.
std::vector<ModelTensor> model_tensors(const ModelConfig& config);

}  // namespace lockstep
