// Writes a checkpoint folder piece by piece: one safetensors file, or several with an index when it
// is larger than a file may be. Files appear under their final names at finish() only.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/model/checkpoint.h"
#include "engine/model/output_file.h"
#include "engine/model/safetensors.h"

namespace lockstep {

class CheckpointWriter {
 public:
  // `tensors` are spread over files in this order; inside a file wide elements come first, so that
  // every tensor starts at a multiple of its element size. Their `bytes` are unused. Throws Error
  // when the disk is too small or the folder holds a checkpoint already.
  CheckpointWriter(const std::filesystem::path& dir, std::vector<TensorInfo> tensors,
                   int64_t max_file_bytes = int64_t{5} << 30);

  // The next bytes of a tensor's data. Tensors may come in any order.
  void append(const std::string& name, std::span<const std::byte> bytes);

  // A programmer error when bytes are missing. Also writes the index.
  void finish();

 private:
  struct Part {
    std::string name;
    std::vector<TensorInfo> tensors;
    int64_t n_bytes = 0;  // of data
    int64_t n_file = 0;   // with the header
  };
  struct Place {
    size_t part = 0;
    int64_t next = 0;  // where the next bytes go
    int64_t end = 0;
  };

  void split(std::vector<TensorInfo> tensors, int64_t max_file_bytes);
  void open_part(size_t index);

  std::filesystem::path dir_;
  std::vector<Part> parts_;
  std::vector<OutputFile> files_;  // [part]
  std::map<std::string, Place> places_;
};

// Writes every tensor of `checkpoint` under its canonical name.
void write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& dir);

}  // namespace lockstep
