#include "engine/base/temp_dir.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "engine/base/error.h"

namespace lockstep {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    fail("cannot make a folder like {}: {}", pattern, std::strerror(errno));
  }
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
