// All 256 E4M3 values, for kernels that decode one scale at a time.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace lockstep {

constexpr std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (uint32_t code = 0; code < 128; ++code) {
    const uint32_t exponent = code >> 3;
    const uint32_t mantissa = code & 7u;
    float value = static_cast<float>(mantissa) * 0x1p-9f;
    if (exponent != 0) value = std::bit_cast<float>(((exponent + 120) << 23) | (mantissa << 20));
    if (code == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
    table[code] = value;
    table[code + 128] = -value;
  }
  return table;
}

inline constexpr std::array<float, 256> kE4m3Table = make_e4m3_table();

}  // namespace lockstep
