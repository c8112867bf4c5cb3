// Writer of the GGUF container, version 3: header, typed keys, tensor table, data in multiples
// of 32. Format: the ggml project's specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/model/output_file.h"

namespace lockstep {

enum class GgufType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8 };

// Bytes of a row of `n` values. n must be a multiple of 32 for q8_0.
int64_t gguf_row_bytes(GgufType type, int64_t n);

// Rounds to nearest (q8_0: blocks of 32 with an F16 scale amax / 127, halves away from zero).
// `values` becomes what a reader decodes.
void gguf_encode_row(GgufType type, std::span<float> values, std::byte* out);

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<int64_t> shape;  // slowest first, as everywhere here; the file has it reversed
  // Row n of the tensor seen as [product of the others, last]; row length shape.back().
  std::function<void(int64_t row, float* out)> row;
  std::string group;  // class for the error report

  int64_t n_rows() const;
  int64_t n_bytes() const;
};

class GgufWriter {
 public:
  void add_u32(const std::string& key, uint32_t value);
  void add_f32(const std::string& key, float value);
  void add_bool(const std::string& key, bool value);
  void add_string(const std::string& key, const std::string& value);
  void add_i32_array(const std::string& key, const std::vector<int32_t>& values);
  void add_string_array(const std::string& key, const std::vector<std::string>& values);
  void add_tensor(GgufTensor tensor) { tensors_.push_back(std::move(tensor)); }

  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // `visit` sees every row before and after rounding. Atomic: the file appears whole or not at all.
  using RowVisitor = std::function<void(const GgufTensor& tensor, std::span<const float> before,
                                        std::span<const float> after)>;
  void write(const std::filesystem::path& path, const RowVisitor& visit) const;

 private:
  std::string header() const;

  std::string keys_;
  uint64_t n_keys_ = 0;
  std::vector<GgufTensor> tensors_;
};

}  // namespace lockstep
