// What the tests of this module share: temporary folders, expected failures, random bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/philox.h"
#include "engine/model/checkpoint.h"
#include "engine/model/safetensors.h"

namespace lockstep {

// A folder in memory where there is some: product code flushes to disk, and tests need not wait.
class TestDir {
 public:
  TestDir();
  ~TestDir();
  TestDir(const TestDir&) = delete;
  TestDir& operator=(const TestDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The message of the Error that `body` throws; "" (and a test failure) when it throws none.
std::string error_of(const std::function<void()>& body);

// The body must throw an Error whose message is one line and holds every word.
void expect_error(const std::function<void()>& body, const std::vector<std::string>& words);

std::vector<std::byte> random_bytes(PhiloxStream& random, size_t n_bytes);

}  // namespace lockstep
