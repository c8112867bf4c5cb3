// How the random bytes of one synthetic tensor become its data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/model/convert/storage_formats.h"
#include "engine/model/safetensors.h"

namespace lockstep {

struct TensorFill {
  enum class Kind : uint8_t {
    uniform,  // floats in [center - spread, center + spread)
    codes,    // table[byte]
    raw,      // the random bytes themselves
    pattern,  // `pattern` again and again (a scalar, constant words)
    group,    // I32: element index / group
  };
  Kind kind = Kind::raw;
  DType dtype = DType::U8;
  float center = 0.0f;
  float spread = 0.0f;
  std::array<uint8_t, 256> table{};
  std::array<std::byte, 16> pattern{};  // the tensor's first 16 bytes, and so on
  int64_t group = 1;
};

// Turns random bytes, in place, into elements [first, first + bytes.size() / element size).
void apply_fill(const TensorFill& fill, int64_t first, std::span<std::byte> bytes);

// Fill of part `suffix` of a matrix stored as `format`, so that its values have this standard
// deviation.
TensorFill matrix_fill(const StorageFormat& format, const PartSpec& part, int64_t n_rows,
                       int64_t n_cols, float deviation);

// Floats around `center`, evenly spread over +-`spread`.
TensorFill uniform_fill(DType dtype, float center, float spread);

}  // namespace lockstep
