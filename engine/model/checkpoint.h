// A folder of safetensors files as one set of named tensors, and the matrices stored in it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/safetensors.h"
#include "engine/model/weight_matrix.h"

namespace lockstep {

// Published checkpoints put the same tensors under different prefixes. Canonical:
// "model.language_model.", "lm_head.", "mtp.", "model.visual.".
std::string canonical_tensor_name(const std::string& name);

// A matrix as stored, with what it needs beside the file mapping (expanded scales).
struct StoredMatrix {
  WeightMatrix view;
  std::string format;  // name of the serialisation, e.g. "nvfp4-modelopt"
  std::vector<std::shared_ptr<const void>> keep_alive;
};

class Checkpoint {
 public:
  // Opens DIR/model.safetensors.index.json and its shards, or the *.safetensors files of DIR.
  // Throws Error that names the file, also for an index entry whose file or tensor is absent.
  explicit Checkpoint(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  // By canonical name.
  const TensorInfo* find(const std::string& name) const;
  const std::map<std::string, const TensorInfo*>& tensors() const { return tensors_; }
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }

  // A tensor of exactly this shape; throws Error that names it otherwise.
  const TensorInfo& require(const std::string& name, const std::vector<int64_t>& shape) const;

  // Float32 copy of an F32, BF16 or F16 tensor of exactly this shape.
  std::vector<float> floats(const std::string& name, const std::vector<int64_t>& shape) const;

  // The matrix whose parts are named base + ".weight", ".weight_scale", ...; n_rows x n_cols is what
  // the model needs. The serialisation is decided from dtypes and suffixes (weight_formats.h).
  StoredMatrix matrix(const std::string& base, int64_t n_rows, int64_t n_cols) const;

  // Digest over names, dtypes, shapes and bytes of all tensors: what identifies the weights.
  std::string digest() const;

 private:
  void add_file(const std::filesystem::path& path);

  std::filesystem::path dir_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const TensorInfo*> tensors_;
};

}  // namespace lockstep
