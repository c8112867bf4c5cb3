#include "hardware-probe/real/kernel_libraries.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep::probe {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

// Fat binaries have no documented layout; these offsets hold for CUDA 9 to 13. A hint, not a proof.
constexpr uint32_t kFatMagic = 0xBA55ED50u;
constexpr size_t kFatHeaderBytes = 16, kFatEntryBytes = 64;
constexpr uint16_t kPtx = 1, kMachineCode = 2;

struct Archs {
  std::set<int> code, ptx;
};

template <typename T>
T read_at(Bytes bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

Bytes part_of(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.subspan(offset, size);
}

// The sections of this name; none in a file that is no 64-bit ELF.
std::vector<Bytes> sections(Bytes file, std::initializer_list<std::string_view> names) {
  std::vector<Bytes> out;
  if (file.size() < sizeof(Elf64_Ehdr)) return out;
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return out;
  const Bytes table = part_of(file, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
  const auto section = [&](size_t i) { return read_at<Elf64_Shdr>(table, i * sizeof(Elf64_Shdr)); };
  if (table.empty() || header.e_shstrndx >= header.e_shnum) return out;
  const Elf64_Shdr strings = section(header.e_shstrndx);
  const Bytes all_names = part_of(file, strings.sh_offset, strings.sh_size);
  for (size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr own = section(i);
    if (own.sh_type == SHT_NOBITS || own.sh_name >= all_names.size()) continue;
    const char* start = reinterpret_cast<const char*>(all_names.data()) + own.sh_name;
    const std::string_view name(start, ::strnlen(start, all_names.size() - own.sh_name));
    if (std::find(names.begin(), names.end(), name) != names.end())
      out.push_back(part_of(file, own.sh_offset, own.sh_size));
  }
  return out;
}

// Reads the headers alone: a library may hold gigabytes of code.
void add_fat_binaries(Bytes section, Archs& archs) {
  size_t at = 0;
  while (at + kFatHeaderBytes + kFatEntryBytes <= section.size()) {
    if (read_at<uint32_t>(section, at) != kFatMagic) {
      at += 8;
      continue;
    }
    const size_t room = section.size() - at - kFatHeaderBytes;
    const size_t end =
        at + kFatHeaderBytes + std::min<size_t>(read_at<uint64_t>(section, at + 8), room);
    size_t entry = at + kFatHeaderBytes;
    while (entry + kFatEntryBytes <= end) {
      const auto kind = read_at<uint16_t>(section, entry);
      const auto header = read_at<uint32_t>(section, entry + 4);
      const auto size = read_at<uint64_t>(section, entry + 8);
      const auto arch = read_at<uint32_t>(section, entry + 28);
      if (arch >= 30 && arch < 200) {
        if (kind == kPtx) archs.ptx.insert(static_cast<int>(arch));
        if (kind == kMachineCode) archs.code.insert(static_cast<int>(arch));
      }
      if (header == 0 || size > section.size()) break;
      entry += header + size;
    }
    at = std::max(end, at + 8) / 8 * 8;
  }
}

// What follows `mark` up to the first character that no version has.
std::string version_after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return "";
  const size_t begin = at + mark.size();
  size_t end = begin;
  while (end < text.size() && end < begin + 12 &&
         (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.'))
    ++end;
  return std::string(text.substr(begin, end - begin));
}

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void read_archs(Bytes file, KernelLibrary& out) {
  Archs archs;
  for (const Bytes section : sections(file, {".nv_fatbin", "__nv_relfatbin"}))
    add_fat_binaries(section, archs);
  out.archs.assign(archs.code.begin(), archs.code.end());
  out.ptx_archs.assign(archs.ptx.begin(), archs.ptx.end());
}

// The file that the loader takes for this name, by a symbol of it.
std::optional<fs::path> loaded_from(const char* library, const char* symbol) {
  void* handle = ::dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  void* address = handle == nullptr ? nullptr : ::dlsym(handle, symbol);
  Dl_info where{};
  if (address == nullptr || ::dladdr(address, &where) == 0) return {};
  return fs::path(where.dli_fname);
}

// lib/python3*/site-packages and dist-packages of one prefix.
std::vector<fs::path> package_folders(const fs::path& prefix) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(prefix / "lib", error)) {
    if (entry.path().filename().string().compare(0, 7, "python3") != 0) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      if (fs::is_directory(entry.path() / packages, error)) out.push_back(entry.path() / packages);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

class Finder {
 public:
  explicit Finder(KernelLibrary (*inspect)(const fs::path&)) : inspect_(inspect) {}

  void look(const fs::path& file, bool loader) {
    std::error_code error;
    const fs::path real = fs::canonical(file, error);
    if (error || !seen_.insert(real).second) return;
    found_.push_back(inspect_(real));
    found_.back().loader = loader;
  }
  std::vector<KernelLibrary> take() { return std::move(found_); }

 private:
  KernelLibrary (*inspect_)(const fs::path&);
  std::set<fs::path> seen_;
  std::vector<KernelLibrary> found_;
};

}  // namespace

KernelLibrary inspect_nccl(const fs::path& file) {
  KernelLibrary out;
  out.path = file.string();
  try {
    const MappedFile mapped(file);
    read_archs(mapped.bytes(), out);
    for (const Bytes section : sections(mapped.bytes(), {".rodata"})) {
      out.version = version_after(text_of(section), "NCCL version ");
      out.cuda = version_after(text_of(section), "NCCL version " + out.version + "+cuda");
    }
  } catch (const Error&) {
    // That it is there is still worth telling.
  }
  return out;
}

KernelLibrary inspect_torch(const fs::path& file) {
  KernelLibrary out;
  out.path = file.string();
  std::ifstream source(file.parent_path().parent_path() / "version.py");
  std::string line;
  while (std::getline(source, line)) {
    const size_t quote = line.find('\'');
    const size_t end = quote == std::string::npos ? quote : line.find('\'', quote + 1);
    if (end == std::string::npos) continue;
    const std::string value = line.substr(quote + 1, end - quote - 1);
    if (line.compare(0, 11, "__version__") == 0) out.version = value;
    if (line.compare(0, 4, "cuda") == 0) out.cuda = value;
  }
  try {
    read_archs(MappedFile(file).bytes(), out);
  } catch (const Error&) {
    // The version alone is still worth telling.
  }
  return out;
}

std::vector<fs::path> python_prefixes() {
  std::vector<fs::path> out;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* value = ::getenv(variable); value != nullptr) out.emplace_back(value);
  }
  const char* path = ::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    const fs::path folder(rest.substr(0, colon));
    std::error_code error;
    if (fs::exists(folder / "python3", error)) out.push_back(folder.parent_path());
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  if (const char* home = ::getenv("HOME"); home != nullptr)
    out.push_back(fs::path(home) / ".local");
  for (const char* system : {"/usr", "/usr/local", "/opt/conda"}) out.emplace_back(system);
  return out;
}

std::vector<KernelLibrary> find_nccl(const std::vector<fs::path>& prefixes) {
  Finder finder(inspect_nccl);
  if (const auto file = loaded_from("libnccl.so.2", "ncclGetVersion"); file.has_value())
    finder.look(*file, true);
  for (const fs::path& prefix : prefixes) {
    finder.look(prefix / "lib" / "libnccl.so.2", false);
    for (const fs::path& packages : package_folders(prefix))
      finder.look(packages / "nvidia" / "nccl" / "lib" / "libnccl.so.2", false);
  }
  return finder.take();
}

std::vector<KernelLibrary> find_torch(const std::vector<fs::path>& prefixes) {
  Finder finder(inspect_torch);
  for (const fs::path& prefix : prefixes) {
    for (const fs::path& packages : package_folders(prefix))
      finder.look(packages / "torch" / "lib" / "libtorch_cuda.so", false);
  }
  return finder.take();
}

}  // namespace lockstep::probe
