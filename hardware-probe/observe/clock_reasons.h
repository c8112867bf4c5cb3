// NVML's clock event reasons (nvml.h). A mask: bits are tested with AND, never by equality.
#pragma once

#include <cstdint>

namespace lockstep::probe {

inline constexpr int64_t kReasonPowerCap = 0x4;
inline constexpr int64_t kReasonHwSlowdown = 0x8;
inline constexpr int64_t kReasonSwThermal = 0x20;
inline constexpr int64_t kReasonHwThermal = 0x40;
inline constexpr int64_t kReasonPowerBrake = 0x80;
// 0x8 is the umbrella over heat and power brake, so it does not count by itself.
inline constexpr int64_t kReasonThermal = kReasonSwThermal | kReasonHwThermal;

}  // namespace lockstep::probe
