// How every start-up check ends: the kernel's values against the exact ones.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

// Throws Error that names the kernel, the instruction set and the first wrong value. Zeros match
// whatever their sign; NaN matches nothing.
void require_exact(std::string_view kernel, std::span<const float> got,
                   std::span<const float> expected);

// Values that no kernel of a check computes, so that an output never written is found.
std::vector<float> unwritten(size_t n);

}  // namespace lockstep
