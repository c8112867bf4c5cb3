// UTF-8 in and out of code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// How the bytes at the head of a string read as UTF-8 (no surrogates, no overlong forms).
struct Utf8Head {
  enum class Kind {
    valid,      // `length` bytes are one code point
    invalid,    // `length` bytes are a maximal subpart of an ill-formed sequence: one U+FFFD
    truncated,  // all `length` bytes left could still become a code point
  };
  Kind kind;
  size_t length;
};
// `text` must not be empty.
Utf8Head utf8_head(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Each maximal subpart of an ill-formed sequence becomes U+FFFD, as Python's errors="replace" does.
std::string replace_invalid_utf8(std::string_view text);

// The code point at `*at`, which moves behind it. `text` is valid UTF-8 and *at < text.size().
inline uint32_t next_code_point(std::string_view text, size_t* at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const size_t i = *at;
  const uint32_t lead = byte(i);
  if (lead < 0x80) {
    *at = i + 1;
    return lead;
  }
  if (lead < 0xE0) {
    *at = i + 2;
    return ((lead & 0x1F) << 6) | (byte(i + 1) & 0x3F);
  }
  if (lead < 0xF0) {
    *at = i + 3;
    return ((lead & 0x0F) << 12) | ((byte(i + 1) & 0x3F) << 6) | (byte(i + 2) & 0x3F);
  }
  *at = i + 4;
  return ((lead & 0x07) << 18) | ((byte(i + 1) & 0x3F) << 12) | ((byte(i + 2) & 0x3F) << 6) |
         (byte(i + 3) & 0x3F);
}

// `code` is at most U+10FFFF and no surrogate.
void append_utf8(std::string& out, uint32_t code);

std::vector<uint32_t> to_code_points(std::string_view text);
size_t count_code_points(std::string_view text);

}  // namespace lockstep
