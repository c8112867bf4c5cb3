// Reads what cuobjdump prints about compiled kernels and judges it: registers, spills, shared
// memory, and the instructions of the inner loop.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::sass {

struct Kernel {
  std::string name;  // demangled, without namespaces and parameters: skinny_sm70<Nvfp4Tile>
  int registers = 0;
  int stack_bytes = 0;
  int local_bytes = 0;   // spills and arrays in local memory
  int shared_bytes = 0;  // static
  // The inner loop: the shortest backward branch around the matrix instructions, else around any
  // instruction; empty when nothing loops. Opcodes without their suffixes.
  int loop_instructions = 0;
  std::map<std::string, int> loop_opcodes;
};

// `text` is the output of `cuobjdump -res-usage` followed by that of `cuobjdump -sass`.
std::vector<Kernel> parse_dump(std::string_view text);

// Findings, one line each, empty when all is well. `baseline` is the JSON of docs/v100.md.
std::vector<std::string> judge(const std::vector<Kernel>& kernels, const std::string& baseline);

// The baseline with the measured figures of `kernels` in it; ceilings and units stay.
std::string with_figures(const std::vector<Kernel>& kernels, const std::string& baseline);

}  // namespace lockstep::sass
