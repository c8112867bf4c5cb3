#include "engine/model/checkpoint_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep {

namespace fs = std::filesystem;

CheckpointWriter::CheckpointWriter(const fs::path& dir, std::vector<TensorInfo> tensors,
                                   int64_t max_file_bytes)
    : dir_(dir), tensors_(std::move(tensors)) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) fail("{}: {}", dir.string(), error.message());
  split(max_file_bytes);
  int64_t total = 0;
  for (const Part& part : parts_) total += part.n_bytes;
  check_disk_space(dir, total);
}

void CheckpointWriter::split(int64_t max_file_bytes) {
  LOCKSTEP_CHECK(!tensors_.empty());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const int64_t n_bytes = tensors_[i].n_bytes();
    if (parts_.empty() || parts_.back().n_bytes + n_bytes > max_file_bytes) {
      parts_.push_back({"", i, i, 0});
    }
    parts_.back().end = i + 1;
    parts_.back().n_bytes += n_bytes;
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].name = parts_.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts_.size());
  }
}

void CheckpointWriter::open_part(const Part& part) {
  files_.emplace_back(dir_ / part.name);
  const std::vector<TensorInfo> index(tensors_.begin() + static_cast<int64_t>(part.begin),
                                      tensors_.begin() + static_cast<int64_t>(part.end));
  const std::string header = safetensors_header(index, {{"format", "pt"}});
  files_.back().write_at(0, header);
  ends_.push_back(static_cast<int64_t>(header.size()));
}

void CheckpointWriter::append(size_t index, std::span<const std::byte> bytes) {
  if (index != next_) {
    LOCKSTEP_CHECK(index == next_ + 1 && done_ == tensors_[next_].n_bytes());
    next_ = index;
    done_ = 0;
  }
  while (files_.empty() || index >= parts_[files_.size() - 1].end) open_part(parts_[files_.size()]);
  done_ += static_cast<int64_t>(bytes.size());
  LOCKSTEP_CHECK(done_ <= tensors_[index].n_bytes());
  files_.back().write_at(ends_.back(), bytes);
  ends_.back() += static_cast<int64_t>(bytes.size());
}

void CheckpointWriter::finish() {
  LOCKSTEP_CHECK(next_ + 1 == tensors_.size() && done_ == tensors_[next_].n_bytes());
  const fs::path index_path = dir_ / "model.safetensors.index.json";
  fs::remove(index_path);
  for (const auto& entry : fs::directory_iterator(dir_)) {
    if (entry.path().extension() == ".safetensors") fs::remove(entry.path());
  }
  for (size_t i = 0; i < files_.size(); ++i) files_[i].commit(ends_[i]);
  if (parts_.size() == 1) return;
  nlohmann::ordered_json index;
  int64_t total = 0;
  for (const Part& part : parts_) total += part.n_bytes;
  index["metadata"] = {{"total_size", total}};
  for (const Part& part : parts_) {
    for (size_t i = part.begin; i < part.end; ++i)
      index["weight_map"][tensors_[i].name] = part.name;
  }
  write_file_atomically(index_path, index.dump(1) + "\n");
}

}  // namespace lockstep
