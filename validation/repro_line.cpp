#include "validation/repro_line.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view kFront = "lockstep";

// For a shell: in quotes where a character of it would mean something.
std::string shell_word(const std::string& word) {
  const bool plain = std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("/._-+:@%=,").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string pasteable(const std::string& command, const std::filesystem::path& front) {
  if (!std::filesystem::is_regular_file(front)) return command;
  const std::string path = shell_word(front.string());
  std::string out = command;
  // A command begins at the start and behind each "; ".
  for (size_t at = 0; at != std::string::npos && at < out.size();) {
    if (out.compare(at, kFront.size() + 1, std::string(kFront) + " ") == 0) {
      out.replace(at, kFront.size(), path);
    }
    at = out.find("; ", at);
    if (at != std::string::npos) at += 2;
  }
  return out;
}

}  // namespace lockstep
