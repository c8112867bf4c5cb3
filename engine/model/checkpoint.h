// A set of named tensors and the matrices stored in it: a folder of safetensors files, one such
// file (a rank's shard), or an index whose bytes are made on demand (a synthetic checkpoint).
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
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

// Makes the bytes of tensors that no file holds.
class TensorGenerator {
 public:
  virtual ~TensorGenerator() = default;
  // Bytes [offset, offset + out.size()) of the row-major data of `tensor`. A pure function: any
  // range can be made at any time, in any order, by any process.
  virtual void fill(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const = 0;
};

class Checkpoint {
 public:
  // Opens DIR/model.safetensors.index.json and its shards, or the *.safetensors files of DIR.
  // Throws Error that names the file, also for an index that says something else than its files.
  explicit Checkpoint(const std::filesystem::path& dir);
  // The tensors of one file.
  explicit Checkpoint(std::unique_ptr<SafetensorsFile> file);
  // Tensors of these names, dtypes and shapes (`bytes` unused); `label` stands for the path.
  Checkpoint(std::string label, std::vector<TensorInfo> index,
             std::shared_ptr<const TensorGenerator> generator);

  // The folder or file, as messages name it.
  const std::string& label() const { return label_; }
  bool is_generated() const { return generator_ != nullptr; }
  // By canonical name. `bytes` of a generated tensor is empty: use read().
  const TensorInfo* find(const std::string& name) const;
  const std::map<std::string, const TensorInfo*>& tensors() const { return tensors_; }
  const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }
  int64_t n_bytes() const;  // of all tensors

  // Copies bytes [offset, offset + out.size()) of a tensor of this checkpoint.
  void read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const;
  // Lets the system take back the memory of a mapped tensor's pages; they can be read again.
  void release(const TensorInfo& tensor) const;

  // A tensor of exactly this shape; throws Error that names it otherwise.
  const TensorInfo& require(const std::string& name, const std::vector<int64_t>& shape) const;

  // Float32 copy of an F32, BF16 or F16 tensor of exactly this shape.
  std::vector<float> floats(const std::string& name, const std::vector<int64_t>& shape) const;

  // The matrix whose parts are named base + ".weight", ".weight_scale", ...; n_rows x n_cols is
  // what the model needs. The serialisation is decided from dtypes and suffixes (weight_formats.h).
  StoredMatrix matrix(const std::string& base, int64_t n_rows, int64_t n_cols) const;
  // The same with whatever size it has.
  StoredMatrix matrix(const std::string& base) const;

  // Digest over names, dtypes, shapes and bytes of all tensors: what identifies the weights. Built
  // from the digest of each tensor (checkpoint_digest.h). Reads everything.
  std::string digest() const;

 private:
  void add_file(std::unique_ptr<SafetensorsFile> file);
  TensorInfo with_bytes(const TensorInfo& tensor,
                        std::vector<std::shared_ptr<const void>>& keep_alive) const;

  std::string label_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<TensorInfo> index_;  // of a generated checkpoint
  std::shared_ptr<const TensorGenerator> generator_;
  std::map<std::string, const TensorInfo*> tensors_;
};

}  // namespace lockstep
