// Digests of sources for machines that have none: written at every build, read beside the programs.
#pragma once

#include <filesystem>

#include "validation/receipt/source_digest.h"

namespace lockstep {

// In the share folder of a build or of an installed tree.
std::filesystem::path baked_sources_path();

// Text of sources.json: the units of every scope.
std::string baked_sources(const std::filesystem::path& root);

// Throws Error when the file is none, or a newer one.
SourceUnits baked_units(const std::filesystem::path& path, SourceScope scope);

// Of the tree `root`; without one (empty) what was baked; empty when there is neither.
SourceUnits known_units(const std::filesystem::path& root, SourceScope scope);

}  // namespace lockstep
