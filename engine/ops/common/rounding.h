// The storage type that an op's float output stands for. CPU activations are float arrays in both
// precisions; with `bf16` every stored value is one that bfloat16 can hold.
#pragma once

#include <cstdint>

namespace lockstep {

enum class Rounding : uint8_t { none, bf16 };

}  // namespace lockstep
