// A large file written piece by piece: it appears under its name whole or not at all, and what an
// interrupted run wrote can be taken up again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace lockstep {

// Throws Error when the file system of `dir` has fewer than `n_bytes` left.
void check_disk_space(const std::filesystem::path& dir, int64_t n_bytes);

class OutputFile {
 public:
  // Opens PATH.partial, keeping what it holds. Throws Error that names the path.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();  // leaves PATH.partial when commit was not called
  OutputFile(OutputFile&& other) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  OutputFile& operator=(OutputFile&&) = delete;

  void write_at(int64_t offset, std::span<const std::byte> bytes);
  void write_at(int64_t offset, const std::string& bytes);
  // False when the file ends before.
  bool read_at(int64_t offset, std::span<std::byte> out) const;
  // Bytes on disk that a resumed run need not allocate again.
  int64_t size() const;
  // Cuts to `n_bytes`, flushes to disk and renames to PATH.
  void commit(int64_t n_bytes);

  static std::filesystem::path partial_path(const std::filesystem::path& path);

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace lockstep
