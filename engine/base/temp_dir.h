// A fresh private folder that is removed with everything in it when the object goes.
//
// A process that a signal ends leaves its folders behind: the next one that makes a TempDir removes
// them. Each folder is locked (flock) for the life of its object, and the lock goes with the
// process.
#pragma once

#include <filesystem>

namespace lockstep {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;  // the opened folder
};

// Removes from `parent` the folders that TempDirs of ended processes left there: of this user,
// named and made as TempDir does, untouched for a minute and with a lock that can be taken. Never
// follows a link.
void remove_stale_temp_dirs(const std::filesystem::path& parent);

}  // namespace lockstep
