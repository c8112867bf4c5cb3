// The keys that clients must show.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::serve {

// Takes as long for a wrong first byte as for a wrong last one.
bool equal_in_constant_time(std::string_view a, std::string_view b);

class ApiKeys {
 public:
  // Keys from a file (one a line; empty lines and lines from '#' on are skipped) and from the
  // environment variable LOCKSTEP_API_KEY; `file` may be empty. Throws Error when the file cannot
  // be read, holds no key or may be read by others.
  static ApiKeys load(const std::string& file);

  bool required() const { return !keys_.empty(); }
  // Every key is compared, whichever matches.
  bool allow(std::string_view key) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace lockstep::serve
