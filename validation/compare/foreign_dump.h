// Dumps that any program may have written: safetensors files, .npy files, folders of them.
#pragma once

#include <filesystem>
#include <vector>

#include "validation/compare/dump_compare.h"
#include "validation/compare/name_map.h"
#include "validation/compare/tap_judge.h"

namespace lockstep {

// One path a rank, each a .safetensors file, a .npy file (its tensor is called as the file is), or
// a folder that is searched for both (a .npy tensor is called as its path below the folder).
// `names` gives the taps; a tensor that no rule matches, or a tap that two become, is an error.
// Throws Error (exit 3).
TapDump read_foreign_dump(const std::vector<std::filesystem::path>& ranks, const NameMap& names);

// As read_foreign_dump, without rules: taps keep their names, and safetensors files may be our own
// (metadata "shard:").
TapDump read_named_dump(const std::vector<std::filesystem::path>& ranks);

// A dump against the recorded taps of an oracle's prompt, with the limits of `precision`
// (tolerance.h). Taps that `only` does not name are listed as not checked; with an empty `only` all
// must be there.
DumpReport judge_dump(const OraclePrompt& oracle, const TapDump& dump,
                      const std::vector<std::string>& only, Precision precision);

}  // namespace lockstep
