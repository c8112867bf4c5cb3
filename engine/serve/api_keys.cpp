#include "engine/serve/api_keys.h"

#include <sys/stat.h>

#include <cstdlib>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep::serve {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool others_can_read(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)) != 0;
}

}  // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  // Over the presented text's length, which its sender knows anyway.
  volatile unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = difference | static_cast<unsigned char>(a[i] ^ other);
  }
  return difference == 0;
}

ApiKeys ApiKeys::load(const std::string& file) {
  ApiKeys keys;
  if (!file.empty()) {
    if (others_can_read(file)) {
      fail("--api-key-file {}: can be read by others; chmod 600 it", file);
    }
    std::istringstream text(read_text_file(file, 1 << 20));
    for (std::string line; std::getline(text, line);) {
      const std::string key = trimmed(line);
      if (!key.empty() && key.front() != '#') keys.keys_.push_back(key);
    }
    if (keys.keys_.empty()) fail("--api-key-file {}: holds no key", file);
  }
  if (const char* key = std::getenv("LOCKSTEP_API_KEY"); key != nullptr && *key != '\0') {
    keys.keys_.push_back(trimmed(key));
  }
  return keys;
}

bool ApiKeys::allow(std::string_view key) const {
  unsigned matches = 0;
  for (const std::string& known : keys_) {
    matches |= static_cast<unsigned>(equal_in_constant_time(key, known));
  }
  return matches != 0;
}

}  // namespace lockstep::serve
