// Which CUDA ops no receipt covers (docs/formats/receipt.md): programs say so at their start.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// BIN/../share/lockstep, in a build folder and in an installed tree.
std::filesystem::path share_folder();

// One line an op, "op linear is not gated: WHY", from SHARE/ungated-ops.txt, which every build
// writes; a line that says so when that file is missing. Empty: a receipt covers every op.
std::vector<std::string> ungated_ops();

}  // namespace lockstep
