#include "engine/text/jinja/string_literal.h"

#include <charconv>
#include <cstdint>

#include "engine/text/utf8.h"

namespace lockstep::jinja {
namespace {

constexpr std::string_view kNames = "abfnrtv\\'\"";
constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";

bool is_octal(char c) {
  return c >= '0' && c <= '7';
}

// Reads `length` hexadecimal digits at `*at` as a code point.
const char* append_hex(std::string_view body, size_t* at, size_t length, std::string& out) {
  uint32_t code = 0;
  const std::string_view digits = body.substr(*at, length);
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() != length || result.ptr != digits.data() + length) {
    return "a string with an incomplete \\x, \\u or \\U escape";
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    return "a string with an escape that is no character";
  }
  append_utf8(out, code);
  *at += length;
  return nullptr;
}

}  // namespace

const char* unescape_string_literal(std::string_view body, std::string& out) {
  for (size_t at = 0; at < body.size();) {
    if (body[at] != '\\' || at + 1 == body.size()) {
      out += body[at++];
      continue;
    }
    const char c = body[at + 1];
    at += 2;
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      out += kMeanings[known];
    } else if (c == '\n') {
      continue;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      if (const char* problem = append_hex(body, &at, length, out)) return problem;
    } else if (is_octal(c)) {
      auto code = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && at < body.size() && is_octal(body[at]); ++i) {
        code = code * 8 + static_cast<uint32_t>(body[at++] - '0');
      }
      append_utf8(out, code);
    } else if (c == 'N') {
      return "a string with a \\N escape, which is not supported";
    } else {
      out += '\\';
      out += c;
    }
  }
  return nullptr;
}

}  // namespace lockstep::jinja
