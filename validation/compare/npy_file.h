// Arrays that NumPy saved: one .npy file is one tensor.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "validation/tensor_compare.h"

namespace lockstep {

// Reads versions 1 to 3 with little-endian float16, float32 or float64 ("<f2", "<f4", "<f8"), or
// bfloat16 as NumPy extensions save it ("<V2"), in C or Fortran order. Values become float32. The
// file is untrusted: header, shape product and length are checked before anything is allocated.
// Throws Error (exit 3) that names the file.
FloatTensor read_npy(const std::filesystem::path& path);
FloatTensor parse_npy(std::span<const std::byte> bytes, const std::string& label);

}  // namespace lockstep
