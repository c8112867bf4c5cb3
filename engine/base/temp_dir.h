// A fresh private folder that is removed with everything in it when the object goes.
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
};

}  // namespace lockstep
