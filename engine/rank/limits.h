// Bounds that flags, requests and the scheduler share.
#pragma once

namespace lockstep {

inline constexpr int kMaxSlots = 8;
inline constexpr int kMaxDrafts = 5;  // k of speculation

}  // namespace lockstep
