// Reader and writer of the safetensors container: u64 header length (little endian), a JSON header
// {name: {dtype, shape, data_offsets}}, then the data. Format: the safetensors project's
// specification.
//
// The reader trusts nothing: header length, every offset, every shape product and that every data
// byte belongs to exactly one tensor are checked before a tensor can be reached, and nothing is
// allocated from a claimed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/mapped_file.h"

namespace lockstep {

enum class DType : uint8_t {
  F64,
  F32,
  F16,
  BF16,
  F8_E4M3,
  F8_E5M2,
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  U64,
  I64,
  BOOL
};

std::string_view dtype_name(DType dtype);
int64_t dtype_bytes(DType dtype);

struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // in the file mapping, row-major

  int64_t n_elements() const;
  int64_t n_bytes() const;         // from dtype and shape
  std::string shape_text() const;  // "[256, 512]"
};

class SafetensorsFile {
 public:
  // Throws Error that names the file and the tensor.
  explicit SafetensorsFile(const std::filesystem::path& path);
  // Parses `bytes`, which must outlive the object; `label` stands for the path in messages.
  SafetensorsFile(std::span<const std::byte> bytes, const std::string& label);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in order of their data
  const TensorInfo* find(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& label() const { return label_; }
  std::string_view header_text() const { return header_text_; }

 private:
  void parse(std::span<const std::byte> bytes);

  std::string label_;
  MappedFile file_;
  std::string_view header_text_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// The length prefix and JSON header, padded to 8 bytes, of tensors whose data follow in this order.
std::string safetensors_header(const std::vector<TensorInfo>& tensors,
                               const std::map<std::string, std::string>& metadata);

// Collects tensors and writes them in the order of `add`. Bytes given to `add` must live until
// `write`.
class SafetensorsWriter {
 public:
  void add(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
           std::span<const std::byte> bytes);
  void set_metadata(const std::string& key, const std::string& value) { metadata_[key] = value; }
  std::string header() const { return safetensors_header(tensors_, metadata_); }
  // Atomic: the file appears whole or not at all.
  void write(const std::filesystem::path& path) const;

 private:
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A float32 copy of an F32, BF16 or F16 tensor.
std::vector<float> to_float_vector(const TensorInfo& tensor);

}  // namespace lockstep
