#include "engine/model/checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "engine/base/error.h"
#include "engine/model/checkpoint_digest.h"
#include "engine/model/checkpoint_index.h"
#include "engine/model/weight_formats.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool starts_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

// Large tensors on all processors: a 27B model is made in seconds then.
void generate(const TensorGenerator& generator, const TensorInfo& tensor,
              std::span<std::byte> out) {
  constexpr size_t kPiece = size_t{4} << 20;
  const size_t n_pieces = (out.size() + kPiece - 1) / kPiece;
  const size_t n_threads = std::min<size_t>(n_pieces, std::thread::hardware_concurrency());
  const auto make = [&](size_t first) {
    for (size_t at = first * kPiece; at < out.size(); at += n_threads * kPiece) {
      generator.fill(tensor, static_cast<int64_t>(at),
                     out.subspan(at, std::min(kPiece, out.size() - at)));
    }
  };
  if (n_threads <= 1) {
    generator.fill(tensor, 0, out);
    return;
  }
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < n_threads; ++i) threads.emplace_back(make, i);
  make(0);
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

Checkpoint::Checkpoint(const fs::path& dir) : label_(dir.string()) {
  if (!fs::is_directory(dir)) fail("{}: is not a folder with a checkpoint", dir.string());
  const fs::path index = dir / "model.safetensors.index.json";
  if (fs::exists(index)) {
    const CheckpointIndex listed(index);
    for (const std::string& file : listed.files()) {
      add_file(std::make_unique<SafetensorsFile>(dir / file));
    }
    listed.check(files_);
    return;
  }
  for (const fs::path& path : safetensors_in(dir)) {
    add_file(std::make_unique<SafetensorsFile>(path));
  }
  if (files_.empty()) fail("{}: holds no .safetensors file", dir.string());
}

Checkpoint::Checkpoint(std::unique_ptr<SafetensorsFile> file) : label_(file->label()) {
  add_file(std::move(file));
}

Checkpoint::Checkpoint(std::string label, std::vector<TensorInfo> index,
                       std::shared_ptr<const TensorGenerator> generator)
    : label_(std::move(label)), index_(std::move(index)), generator_(std::move(generator)) {
  for (const TensorInfo& tensor : index_) {
    const bool fresh = tensors_.emplace(tensor.name, &tensor).second;
    LOCKSTEP_CHECK(fresh);
  }
}

void Checkpoint::add_file(std::unique_ptr<SafetensorsFile> file) {
  files_.push_back(std::move(file));
  for (const TensorInfo& tensor : files_.back()->tensors()) {
    const auto [at, fresh] = tensors_.emplace(canonical_tensor_name(tensor.name), &tensor);
    if (fresh) continue;
    fail("{}: tensor {} is there twice, in this or another file of the checkpoint",
         files_.back()->label(), tensor.name);
  }
}

int64_t Checkpoint::n_bytes() const {
  int64_t n = 0;
  for (const auto& [name, tensor] : tensors_) n += tensor->n_bytes();
  return n;
}

void Checkpoint::read(const TensorInfo& tensor, int64_t offset, std::span<std::byte> out) const {
  const auto n_out = static_cast<int64_t>(out.size());
  LOCKSTEP_CHECK(offset >= 0 && n_out <= tensor.n_bytes() && offset <= tensor.n_bytes() - n_out);
  if (out.empty()) return;
  if (generator_ != nullptr) {
    generator_->fill(tensor, offset, out);
  } else {
    std::memcpy(out.data(), tensor.bytes.data() + offset, out.size());
  }
}

void Checkpoint::release(const TensorInfo& tensor) const {
  // Whole pages inside the tensor only: its neighbours may be in use.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(tensor.bytes.data()) + page - 1) / page * page;
  const auto end =
      (reinterpret_cast<uintptr_t>(tensor.bytes.data()) + tensor.bytes.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

TensorInfo Checkpoint::with_bytes(const TensorInfo& tensor,
                                  std::vector<std::shared_ptr<const void>>& keep_alive) const {
  if (generator_ == nullptr) return tensor;
  const auto n_bytes = static_cast<size_t>(tensor.n_bytes());
  const std::shared_ptr<std::byte[]> made(new std::byte[n_bytes]);  // unset: all of it is filled
  generate(*generator_, tensor, {made.get(), n_bytes});
  TensorInfo copy = tensor;
  copy.bytes = {made.get(), n_bytes};
  keep_alive.push_back(made);
  return copy;
}

const TensorInfo* Checkpoint::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : at->second;
}

const TensorInfo& Checkpoint::require(const std::string& name,
                                      const std::vector<int64_t>& shape) const {
  const TensorInfo* tensor = find(name);
  const std::string expected = TensorInfo{name, DType::F32, shape, {}}.shape_text();
  if (tensor == nullptr) fail("{}: tensor {} {} is missing", label_, name, expected);
  if (tensor->shape != shape) {
    fail("{}: tensor {} has shape {}, the config needs {}", label_, name, tensor->shape_text(),
         expected);
  }
  return *tensor;
}

std::vector<float> Checkpoint::floats(const std::string& name,
                                      const std::vector<int64_t>& shape) const {
  std::vector<std::shared_ptr<const void>> keep_alive;
  return to_float_vector(with_bytes(require(name, shape), keep_alive));
}

StoredMatrix Checkpoint::matrix(const std::string& base) const {
  std::vector<std::shared_ptr<const void>> keep_alive;
  std::map<std::string, TensorInfo> found;
  for (const std::string& suffix : matrix_suffixes()) {
    if (const TensorInfo* part = find(base + "." + suffix)) {
      found[suffix] = with_bytes(*part, keep_alive);
    }
  }
  if (found.empty()) fail("{}: matrix {} is missing", label_, base);
  MatrixParts parts;
  for (const auto& [suffix, part] : found) parts[suffix] = &part;
  StoredMatrix stored = find_weight_format(base, parts).open(base, parts);
  stored.keep_alive.insert(stored.keep_alive.end(), keep_alive.begin(), keep_alive.end());
  return stored;
}

StoredMatrix Checkpoint::matrix(const std::string& base, int64_t n_rows, int64_t n_cols) const {
  StoredMatrix stored = matrix(base);
  if (stored.view.n_rows != n_rows || stored.view.n_cols != n_cols) {
    fail("{}: matrix {} is [{}, {}], the config needs [{}, {}]", label_, base, stored.view.n_rows,
         stored.view.n_cols, n_rows, n_cols);
  }
  return stored;
}

std::string Checkpoint::digest() const {
  std::map<std::string, std::string> digests;
  for (const auto& [name, tensor] : tensors_) digests[name] = tensor_digest(*this, *tensor);
  return combined_digest(*this, digests);
}

}  // namespace lockstep
