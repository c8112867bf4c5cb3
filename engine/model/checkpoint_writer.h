// Writes a checkpoint folder piece by piece: one safetensors file, or several with an index when it
// is larger than a file may be. Files appear under their final names at finish() only.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/model/output_file.h"
#include "engine/model/safetensors.h"

namespace lockstep {

class CheckpointWriter {
 public:
  // `tensors` in the order in which write() will be called; their `bytes` are unused. Throws Error
  // when the disk is too small.
  CheckpointWriter(const std::filesystem::path& dir, std::vector<TensorInfo> tensors,
                   int64_t max_file_bytes = int64_t{5} << 30);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // The next bytes of the data of tensor `index`; tensors and their bytes must come in order.
  void append(size_t index, std::span<const std::byte> bytes);

  // Throws a programmer error when bytes are missing. Also writes the index, and removes files of
  // an earlier checkpoint in the folder that would be read with it.
  void finish();

 private:
  struct Part {
    std::string name;
    size_t begin = 0;  // first tensor
    size_t end = 0;
    int64_t n_bytes = 0;
  };

  void split(int64_t max_file_bytes);
  void open_part(const Part& part);

  std::filesystem::path dir_;
  std::vector<TensorInfo> tensors_;
  std::vector<Part> parts_;
  std::vector<OutputFile> files_;  // [part], open once begun
  std::vector<int64_t> ends_;      // bytes written of each file
  size_t next_ = 0;                // tensor being written
  int64_t done_ = 0;               // its bytes so far
};

}  // namespace lockstep
