#include "engine/model/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/progress.h"

namespace lockstep {

namespace fs = std::filesystem;

void check_disk_space(const fs::path& dir, int64_t n_bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(dir, error);
  if (error) fail("{}: {}", dir.string(), error.message());
  if (n_bytes > 0 && space.available < static_cast<uintmax_t>(n_bytes)) {
    fail("{}: needs {} of disk space, {} are free", dir.string(),
         human_bytes(static_cast<double>(n_bytes)),
         human_bytes(static_cast<double>(space.available)));
  }
}

fs::path OutputFile::partial_path(const fs::path& path) {
  return path.string() + ".partial";
}

OutputFile::OutputFile(const fs::path& path) : path_(path) {
  fd_ = ::open(partial_path(path).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("{}: {}", path.string(), std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

void OutputFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("{}: {}", path_.string(), std::strerror(errno));
    offset += n;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void OutputFile::write_at(int64_t offset, const std::string& bytes) {
  write_at(offset, std::as_bytes(std::span(bytes.data(), bytes.size())));
}

bool OutputFile::read_at(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("{}: {}", path_.string(), std::strerror(errno));
    if (n == 0) return false;
    offset += n;
    out = out.subspan(static_cast<size_t>(n));
  }
  return true;
}

int64_t OutputFile::size() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail("{}: {}", path_.string(), std::strerror(errno));
  return static_cast<int64_t>(status.st_size);
}

void OutputFile::commit(int64_t n_bytes) {
  const bool flushed = ::ftruncate(fd_, n_bytes) == 0 && ::fsync(fd_) == 0;
  if (!flushed || ::rename(partial_path(path_).c_str(), path_.c_str()) != 0) {
    fail("{}: {}", path_.string(), std::strerror(errno));
  }
  ::close(std::exchange(fd_, -1));
}

}  // namespace lockstep
