// A whole file mapped read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace lockstep {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error that names the path when it cannot be opened, is not a regular file, or is empty.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The file's text; throws Error that names the path, also when it is larger than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, size_t max_bytes = size_t{64} << 20);

// Writes beside `path` and renames, so that a reader sees the old file or the whole new one.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, const std::string& text);

// For a file that is written at the end of long work: throws Error that names `flag` and the remedy
// where write_file_atomically could not write `path`.
void require_writable(const std::string& flag, const std::filesystem::path& path);

}  // namespace lockstep
