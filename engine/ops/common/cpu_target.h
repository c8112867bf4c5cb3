// Which instruction set the CPU kernels run on. Every target gives the same bits.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// "auto", "avx2" or "avx512". Must be called once before the first kernel. Throws Error with one
// clear line when the processor lacks the target, or has no fused multiply-add at all.
void select_cpu_target(const std::string& name);

// Names that select_cpu_target takes on this machine, without "auto".
std::vector<std::string> available_cpu_targets();

// The target in use.
std::string current_cpu_target();

}  // namespace lockstep
