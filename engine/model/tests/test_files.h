// What the tests of this module share: temporary folders, checkpoints in memory, expected failures.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/philox.h"
#include "engine/model/checkpoint.h"
#include "engine/model/safetensors.h"

namespace lockstep {

class TestDir {
 public:
  TestDir() {
    // Memory where there is some: product code flushes to disk, and tests need not wait for it.
    const std::filesystem::path memory = "/dev/shm";
    const bool usable = ::access(memory.c_str(), W_OK) == 0;
    const auto parent = usable ? memory : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "lockstep-test-XXXXXX").string();
    LOCKSTEP_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TestDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDir(const TestDir&) = delete;
  TestDir& operator=(const TestDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The message of the Error that `body` throws; "" (and a failure) when it throws none.
template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

template <typename Body>
void expect_error(const Body& body, const std::vector<std::string>& words) {
  const std::string message = error_of(body);
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' not in: " << message;
  }
}

inline std::vector<std::byte> random_bytes(PhiloxStream& random, size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next_u32());
  return bytes;
}

}  // namespace lockstep
