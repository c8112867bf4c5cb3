// Repro lines: commands that make a check again, from the checkout or the installed tree that made
// it before.
#pragma once

#include <filesystem>
#include <string>

#include "engine/base/process.h"

namespace lockstep {

// Receipts and JSON keep commands that begin with the bare word `lockstep`, because no folder of
// one machine belongs there. People get them with the path of `front`, so that a line can be
// pasted; where there is no such program, the line stays as it is.
std::string pasteable(const std::string& command,
                      const std::filesystem::path& front = sibling_program("lockstep"));

}  // namespace lockstep
