// Digests of the sources that a receipt vouches for. Comments and blank lines do not count, so that
// a better comment asks for no new measurement.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

// Path from the repository's root -> 128-bit digest of the file without comments.
using FileDigests = std::map<std::string, std::string>;

// Unit -> its files. A unit is what one waiver can name: an op, or a folder of the engine.
using SourceUnits = std::map<std::string, FileDigests>;

// What a policy's receipt vouches for.
enum class SourceScope {
  cuda_ops,  // one unit an op: engine/ops/OP/**/cuda*, its plan, and every header that they include
  engine     // one unit a folder of engine/: all its sources, tests left out
};

// "cuda-ops", "engine".
std::string scope_name(SourceScope scope);
// Throws Error that names `label`.
SourceScope parse_scope(const std::string& name, const std::string& label);

// C and C++ text without comments, each line without trailing blanks, empty lines dropped. Literals
// stay as they are.
std::string without_comments(const std::string& text);

// Throws Error when `root` is no source tree of Lockstep.
SourceUnits source_units(const std::filesystem::path& root, SourceScope scope);

// One digest over a unit's files.
std::string unit_digest(const FileDigests& files);

// The source tree that this program was built from, seen from its folder: BIN/../... Empty when
// there is none (an installed program).
std::filesystem::path source_root();

}  // namespace lockstep
