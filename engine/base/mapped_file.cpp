#include "engine/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/error.h"

namespace lockstep {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// O_NONBLOCK: opening a FIFO must not wait for a writer; regular files do not know the flag.
int open_for_reading(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail("{}: {}", path.string(), std::strerror(errno));
  return fd;
}

size_t regular_file_size(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail("{}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("{}: is not a regular file", path.string());
  return static_cast<size_t>(status.st_size);
}

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("{}: {}", path.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

// Into what is no file of its own, as a device or a pipe: a renamed file would take its place.
void write_in_place(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) fail("{}: {}", path.string(), std::strerror(errno));
  write_all(file.get(), bytes, path);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const FileDescriptor file(open_for_reading(path));
  size_ = regular_file_size(file.get(), path);
  if (size_ == 0) fail("{}: is empty", path.string());
  void* mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapping == MAP_FAILED) fail("{}: cannot map: {}", path.string(), std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_text_file(const std::filesystem::path& path, size_t max_bytes) {
  const FileDescriptor file(open_for_reading(path));
  const size_t size = regular_file_size(file.get(), path);
  if (size > max_bytes) {
    fail("{}: {} bytes, more than the {} allowed here", path.string(), size, max_bytes);
  }
  // Files of /proc and /sys say 0 or 4096 bytes whatever they hold: read to the end, not to the
  // size.
  std::string text;
  while (true) {
    char block[65536];
    const ssize_t got = ::read(file.get(), block, sizeof(block));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("{}: {}", path.string(), std::strerror(errno));
    if (got == 0) return text;
    text.append(block, static_cast<size_t>(got));
    if (text.size() > max_bytes)
      fail("{}: more than the {} bytes allowed here", path.string(), max_bytes);
  }
}

void write_file_atomically(const std::filesystem::path& link, std::span<const std::byte> bytes) {
  // What a symbolic link leads to is replaced, not the link.
  std::error_code ignored;
  const std::filesystem::path target = std::filesystem::canonical(link, ignored);
  const std::filesystem::path& path = target.empty() ? link : target;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    return write_in_place(path, bytes);
  }
  // The number keeps two threads that write the same path apart.
  static std::atomic<unsigned> n_written{0};
  const std::filesystem::path temporary =
      path.string() + fmt::format(".{}.{}.tmp", ::getpid(), n_written.fetch_add(1));
  const FileDescriptor file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) fail("{}: {}", path.string(), std::strerror(errno));
  try {
    write_all(file.get(), bytes, path);
    if (::fsync(file.get()) != 0) fail("{}: {}", path.string(), std::strerror(errno));
    if (::rename(temporary.c_str(), path.c_str()) != 0) {
      fail("{}: {}", path.string(), std::strerror(errno));
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void write_file_atomically(const std::filesystem::path& path, const std::string& text) {
  write_file_atomically(path, std::as_bytes(std::span(text.data(), text.size())));
}

void require_writable(const std::string& flag, const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::path target = std::filesystem::canonical(path, ignored);
  if (std::filesystem::is_directory(target, ignored)) {
    fail("{} {}: is a folder: name a file in it", flag, path.string());
  }
  const bool in_place = !target.empty() && !std::filesystem::is_regular_file(target, ignored);
  std::filesystem::path folder = (target.empty() ? path : target).parent_path();
  if (folder.empty()) folder = ".";
  if (!std::filesystem::is_directory(folder, ignored)) {
    fail("{} {}: {} is no folder: make it first", flag, path.string(), folder.string());
  }
  const int refused =
      in_place ? ::access(target.c_str(), W_OK) : ::access(folder.c_str(), W_OK | X_OK);
  if (refused != 0) {
    fail("{} {}: cannot be written: {}", flag, path.string(), std::strerror(errno));
  }
}

}  // namespace lockstep
