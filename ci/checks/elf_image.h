// What of an ELF program is left when its debug information is stripped.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

// The bytes of all sections but .debug_*, in file order: code, data and symbol names. Debug
// information also names what was compiled away, so it proves nothing. Throws Error for what is no
// 64-bit little-endian ELF file.
std::string undebugged_sections(const std::filesystem::path& path);

// The same for an image in memory; `name` is for messages.
std::string undebugged_sections_of(std::string_view image, const std::string& name);

}  // namespace lockstep
