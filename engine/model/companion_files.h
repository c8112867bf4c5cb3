// The small files that lie beside a checkpoint's tensors (config, tokenizer, chat template): a
// folder that tools write gets copies, so that a rank can start from it alone.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

// Texts by file name; holds at least config.json.
using CompanionFiles = std::map<std::string, std::string>;

// Those that exist in `dir`. Throws Error when config.json is missing.
CompanionFiles read_companion_files(const std::filesystem::path& dir);

void write_companion_files(const CompanionFiles& files, const std::filesystem::path& dir);

}  // namespace lockstep
