#include "engine/model/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/model/weight_formats.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool starts_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// Names of the files that an index lists. Every name must be a plain file name in the folder.
std::set<std::string> files_of_index(const fs::path& path) {
  const auto json = nlohmann::json::parse(read_text_file(path), nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("weight_map") ||
      !json["weight_map"].is_object() || json["weight_map"].empty()) {
    fail("{}: needs an object weight_map", path.string());
  }
  std::set<std::string> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string()) fail("{}: weight_map.{} must be a file name", path.string(), name);
    const std::string text = file.get<std::string>();
    if (text.empty() || text.find('/') != std::string::npos || text == "..") {
      fail("{}: weight_map.{} leaves the folder: {}", path.string(), name, text);
    }
    files.insert(text);
  }
  return files;
}

void check_index(const fs::path& path, const std::map<std::string, const TensorInfo*>& tensors) {
  const auto json = nlohmann::json::parse(read_text_file(path), nullptr, false);
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (tensors.count(canonical_tensor_name(name)) == 0) {
      fail("{}: lists tensor {}, which {} does not hold: fetch the checkpoint again", path.string(),
           name, file.get<std::string>());
    }
  }
}

std::vector<fs::path> safetensors_in(const fs::path& dir) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::string canonical_tensor_name(const std::string& name) {
  static const std::pair<const char*, const char*> kAliases[] = {
      {"model.language_model.", "model.language_model."},
      {"language_model.model.", "model.language_model."},
      {"language_model.lm_head.", "lm_head."},
      {"model.visual.", "model.visual."},
      {"visual.", "model.visual."},
      {"model.mtp.", "mtp."},
      {"model.", "model.language_model."},
  };
  for (const auto& [alias, canonical] : kAliases) {
    if (starts_with(name, alias)) return canonical + name.substr(std::string(alias).size());
  }
  return name;
}

Checkpoint::Checkpoint(const fs::path& dir) : dir_(dir) {
  if (!fs::is_directory(dir)) fail("{}: is not a folder with a checkpoint", dir.string());
  const fs::path index = dir / "model.safetensors.index.json";
  if (fs::exists(index)) {
    for (const std::string& file : files_of_index(index)) add_file(dir / file);
    check_index(index, tensors_);
    return;
  }
  for (const fs::path& path : safetensors_in(dir)) add_file(path);
  if (files_.empty()) fail("{}: holds no .safetensors file", dir.string());
}

void Checkpoint::add_file(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  for (const TensorInfo& tensor : files_.back()->tensors()) {
    const auto [at, fresh] = tensors_.emplace(canonical_tensor_name(tensor.name), &tensor);
    if (!fresh) fail("{}: tensor {} is in more than one file", path.string(), tensor.name);
  }
}

const TensorInfo* Checkpoint::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : at->second;
}

const TensorInfo& Checkpoint::require(const std::string& name,
                                      const std::vector<int64_t>& shape) const {
  const TensorInfo* tensor = find(name);
  const std::string expected = TensorInfo{name, DType::F32, shape, {}}.shape_text();
  if (tensor == nullptr) fail("{}: tensor {} {} is missing", dir_.string(), name, expected);
  if (tensor->shape != shape) {
    fail("{}: tensor {} has shape {}, the config needs {}", dir_.string(), name,
         tensor->shape_text(), expected);
  }
  return *tensor;
}

std::vector<float> Checkpoint::floats(const std::string& name,
                                      const std::vector<int64_t>& shape) const {
  return to_float_vector(require(name, shape));
}

StoredMatrix Checkpoint::matrix(const std::string& base, int64_t n_rows, int64_t n_cols) const {
  MatrixParts parts;
  for (const std::string& suffix : matrix_suffixes()) {
    if (const TensorInfo* part = find(base + "." + suffix)) parts[suffix] = part;
  }
  if (parts.empty()) {
    fail("{}: matrix {} [{}, {}] is missing", dir_.string(), base, n_rows, n_cols);
  }
  StoredMatrix stored = find_weight_format(base, parts).open(base, parts);
  if (stored.view.n_rows != n_rows || stored.view.n_cols != n_cols) {
    fail("{}: matrix {} is [{}, {}], the config needs [{}, {}]", dir_.string(), base,
         stored.view.n_rows, stored.view.n_cols, n_rows, n_cols);
  }
  return stored;
}

std::string Checkpoint::digest() const {
  Digest128 digest;
  for (const auto& [name, tensor] : tensors_) {
    digest.update(fmt::format("{} {} {}\n", name, dtype_name(tensor->dtype), tensor->shape_text()));
    digest.update(tensor->bytes);
  }
  return digest.hex();
}

}  // namespace lockstep
