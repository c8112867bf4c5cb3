#include "engine/model/tests/test_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep {

namespace fs = std::filesystem;

TestDir::TestDir() {
  const fs::path memory = "/dev/shm";
  const fs::path parent = ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
  std::string pattern = (parent / "lockstep-test-XXXXXX").string();
  LOCKSTEP_CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TestDir::~TestDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

void expect_error(const std::function<void()>& body, const std::vector<std::string>& words) {
  const std::string message = error_of(body);
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' not in: " << message;
  }
}

std::vector<std::byte> random_bytes(PhiloxStream& random, size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next_u32());
  return bytes;
}

}  // namespace lockstep
