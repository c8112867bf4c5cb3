#include "engine/model/checkpoint_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/progress.h"

namespace lockstep {

namespace fs = std::filesystem;

namespace {

// Nothing is ever overwritten or removed: the folder may be the source.
void refuse_existing(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) {
      fail("{}: holds {} already: choose another folder", dir.string(), name);
    }
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(const fs::path& dir, std::vector<TensorInfo> tensors,
                                   int64_t max_file_bytes)
    : dir_(dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) fail("{}: {}", dir.string(), error.message());
  refuse_existing(dir);
  split(std::move(tensors), max_file_bytes);
  int64_t total = 0;
  for (const Part& part : parts_) total += part.n_bytes;
  check_disk_space(dir, total);
  for (size_t i = 0; i < parts_.size(); ++i) open_part(i);
}

void CheckpointWriter::split(std::vector<TensorInfo> tensors, int64_t max_file_bytes) {
  LOCKSTEP_CHECK(!tensors.empty());
  for (TensorInfo& tensor : tensors) {
    const int64_t n_bytes = tensor.n_bytes();
    if (parts_.empty() || parts_.back().n_bytes + n_bytes > max_file_bytes) parts_.emplace_back();
    parts_.back().n_bytes += n_bytes;
    parts_.back().tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].name = parts_.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts_.size());
    std::stable_sort(parts_[i].tensors.begin(), parts_[i].tensors.end(),
                     [](const TensorInfo& a, const TensorInfo& b) {
                       return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
                     });
  }
}

void CheckpointWriter::open_part(size_t index) {
  Part& part = parts_[index];
  files_.emplace_back(dir_ / part.name);
  const std::string header = safetensors_header(part.tensors, {{"format", "pt"}});
  files_.back().write_at(0, header);
  auto next = static_cast<int64_t>(header.size());
  for (const TensorInfo& tensor : part.tensors) {
    const bool fresh =
        places_.emplace(tensor.name, Place{index, next, next + tensor.n_bytes()}).second;
    LOCKSTEP_CHECK(fresh);
    next += tensor.n_bytes();
  }
  part.n_file = next;
}

void CheckpointWriter::append(const std::string& name, std::span<const std::byte> bytes) {
  Place& place = places_.at(name);
  LOCKSTEP_CHECK(static_cast<int64_t>(bytes.size()) <= place.end - place.next);
  files_[place.part].write_at(place.next, bytes);
  place.next += static_cast<int64_t>(bytes.size());
}

void CheckpointWriter::finish() {
  for (const auto& [name, place] : places_) LOCKSTEP_CHECK(place.next == place.end);
  const fs::path index_path = dir_ / "model.safetensors.index.json";
  for (size_t i = 0; i < files_.size(); ++i) files_[i].commit(parts_[i].n_file);
  if (parts_.size() == 1) return;
  nlohmann::ordered_json index;
  int64_t total = 0;
  for (const Part& part : parts_) total += part.n_bytes;
  index["metadata"] = {{"total_size", total}};
  for (const Part& part : parts_) {
    for (const TensorInfo& tensor : part.tensors) index["weight_map"][tensor.name] = part.name;
  }
  write_file_atomically(index_path, index.dump(1) + "\n");
}

void write_checkpoint(const Checkpoint& checkpoint, const fs::path& dir) {
  constexpr int64_t kPieceBytes = int64_t{4} << 20;
  std::vector<TensorInfo> index;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    index.push_back({name, tensor->dtype, tensor->shape, {}});
  }
  CheckpointWriter writer(dir, index);
  Progress progress("writing", static_cast<uint64_t>(checkpoint.n_bytes()), "B");
  std::vector<std::byte> piece;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    for (int64_t done = 0; done < tensor->n_bytes(); done += kPieceBytes) {
      piece.resize(static_cast<size_t>(std::min(kPieceBytes, tensor->n_bytes() - done)));
      checkpoint.read(*tensor, done, piece);
      writer.append(name, piece);
      progress.advance(piece.size());
    }
  }
  writer.finish();
}

}  // namespace lockstep
