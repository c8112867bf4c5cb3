// What AddressSanitizer, ThreadSanitizer or their like wrote into a program's log, for tests that
// run programs: it fails them, whatever the program answered.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace lockstep {

// The lines that name a finding; empty in builds without a sanitizer.
inline std::vector<std::string> sanitizer_reports(const std::string& log) {
  std::vector<std::string> reports;
  std::istringstream text(log);
  for (std::string line; std::getline(text, line);) {
    const bool names_one = line.find("Sanitizer") != std::string::npos ||
                           line.find(": runtime error: ") != std::string::npos;
    if (names_one) reports.push_back(line);
  }
  return reports;
}

}  // namespace lockstep
