// Where the golden model lies that comes with the programs.
#pragma once

#include <filesystem>

namespace lockstep {

// The golden folder beside the build folder of a checkout, or of an installed tree. Throws Error
// (exit 3) that says which flags stand in for it.
std::filesystem::path golden_folder();

}  // namespace lockstep
