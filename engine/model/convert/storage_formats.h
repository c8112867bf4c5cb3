// The serialisations that this program can write: which tensors a matrix becomes, and how its
// values are rounded to codes (to nearest; no calibration data). Reading them back is
// weight_formats.h.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/safetensors.h"

namespace lockstep {

// One tensor of a stored matrix; its name is BASE.suffix.
struct PartSpec {
  std::string suffix;
  DType dtype = DType::BF16;
  std::vector<int64_t> shape;
};

// A matrix to encode: row(n, out) writes its float32 row n.
struct MatrixSource {
  int64_t n_rows = 0;
  int64_t n_cols = 0;
  std::function<void(int64_t row, float* out)> row;
};

// Buffers of the parts by suffix, zeroed, of the size that their specs give.
using PartBuffers = std::map<std::string, std::vector<std::byte>>;

struct StorageFormat {
  std::string_view name;       // "nvfp4-modelopt", "int4-g64", ...
  std::string_view read_as;    // the row of weight_formats() that reads it
  int64_t row_granule = 1;     // n_rows must be a multiple of it
  int64_t column_granule = 1;  // n_cols too
  std::vector<PartSpec> (*parts)(const StorageFormat& format, int64_t n_rows, int64_t n_cols);
  void (*encode)(const StorageFormat& format, const MatrixSource& source, PartBuffers& out);
};

const std::vector<StorageFormat>& storage_formats();

// By name; an unknown name is a programmer error.
const StorageFormat& storage_format(std::string_view name);

// The matrix as parts. Throws Error that names `base` when its sizes do not suit the format.
PartBuffers encode_matrix(const StorageFormat& format, const std::string& base,
                          const MatrixSource& source);

// Throws Error that names `base` when the sizes do not suit the format.
void check_storage_shape(const StorageFormat& format, const std::string& base, int64_t n_rows,
                         int64_t n_cols);

}  // namespace lockstep
