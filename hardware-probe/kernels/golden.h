// The hash that every healthy SM gives for a seed, computed on the host.
#pragma once

#include <cstdint>

namespace lockstep::probe {

uint64_t golden_sm_hash(uint64_t seed, bool matrix_units);

}  // namespace lockstep::probe
