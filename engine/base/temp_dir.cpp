#include "engine/base/temp_dir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The process id keeps these names apart from any that a person would choose: what has such a name
// may be removed.
constexpr std::string_view kPrefix = "lockstep-temp-";
constexpr std::string_view kRandomPart = "XXXXXX";  // mkdtemp's letters and digits

// Between mkdtemp and flock a folder has no lock yet.
constexpr std::chrono::seconds kMinAge{60};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_letter_or_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_temp_dir_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  const size_t dash = name.find('-');
  if (dash == 0 || dash == std::string_view::npos) return false;
  const std::string_view process = name.substr(0, dash);
  const std::string_view random = name.substr(dash + 1);
  return std::ranges::all_of(process, is_digit) && random.size() == kRandomPart.size() &&
         std::ranges::all_of(random, is_letter_or_digit);
}

int open_folder(const fs::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool is_old(const struct stat& folder) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return now - std::chrono::seconds(folder.st_mtim.tv_sec) > kMinAge;
}

void remove_if_stale(const fs::path& path) {
  const int folder = open_folder(path);
  if (folder < 0) return;
  struct stat info {};
  const bool stale = ::fstat(folder, &info) == 0 && info.st_uid == ::geteuid() &&
                     (info.st_mode & 07777) == 0700 && is_old(info) &&
                     ::flock(folder, LOCK_EX | LOCK_NB) == 0;
  std::error_code ignored;
  if (stale) fs::remove_all(path, ignored);
  ::close(folder);
}

}  // namespace

void remove_stale_temp_dirs(const fs::path& parent) {
  std::error_code error;
  fs::directory_iterator entry(parent, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path path = entry->path();
    if (is_temp_dir_name(path.filename().native())) remove_if_stale(path);
  }
}

TempDir::TempDir() {
  const fs::path parent = fs::temp_directory_path();
  static std::once_flag swept;
  std::call_once(swept, remove_stale_temp_dirs, parent);
  std::string pattern =
      (parent / fmt::format("{}{}-{}", kPrefix, ::getpid(), kRandomPart)).string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    fail("cannot make a folder like {}: {}", pattern, std::strerror(errno));
  }
  path_ = pattern;
  // Where a file system has no locks nobody can take this one either, and the folder is safe.
  lock_ = open_folder(path_);
  if (lock_ >= 0) ::flock(lock_, LOCK_EX | LOCK_NB);
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace lockstep
