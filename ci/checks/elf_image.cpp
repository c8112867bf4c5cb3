#include "ci/checks/elf_image.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "engine/base/error.h"

namespace lockstep {
namespace {

std::string_view slice(std::string_view image, size_t offset, size_t n_bytes,
                       const std::string& name) {
  if (offset > image.size() || n_bytes > image.size() - offset)
    fail("{}: a truncated ELF file", name);
  return image.substr(offset, n_bytes);
}

template <typename T>
T read_at(std::string_view image, size_t offset, const std::string& name) {
  T value;
  std::memcpy(&value, slice(image, offset, sizeof(T), name).data(), sizeof(T));
  return value;
}

}  // namespace

std::string undebugged_sections_of(std::string_view image, const std::string& name) {
  const auto header = read_at<Elf64_Ehdr>(image, 0, name);
  const bool is_elf64 = std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
                        header.e_ident[EI_CLASS] == ELFCLASS64 &&
                        header.e_ident[EI_DATA] == ELFDATA2LSB;
  if (!is_elf64 || header.e_shnum == 0) fail("{}: not a 64-bit ELF file with sections", name);
  const auto section = [&](size_t index) {
    return read_at<Elf64_Shdr>(image, header.e_shoff + index * sizeof(Elf64_Shdr), name);
  };
  const Elf64_Shdr names_section = section(header.e_shstrndx);
  const std::string_view names = slice(image, names_section.sh_offset, names_section.sh_size, name);
  std::string bytes;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr header_i = section(i);
    if (header_i.sh_type == SHT_NOBITS || header_i.sh_type == SHT_NULL) continue;
    if (header_i.sh_name >= names.size()) fail("{}: a section without a name", name);
    if (names.substr(header_i.sh_name).starts_with(".debug_")) continue;
    bytes += slice(image, header_i.sh_offset, header_i.sh_size, name);
  }
  return bytes;
}

std::string undebugged_sections(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail("{}: cannot be read", path.string());
  const std::string image(std::istreambuf_iterator<char>(stream), {});
  return undebugged_sections_of(image, path.string());
}

}  // namespace lockstep
