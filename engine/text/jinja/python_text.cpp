#include "engine/text/jinja/python_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "engine/text/utf8.h"

namespace lockstep::jinja {
namespace {

// The beginning of the last code point.
size_t last_code_point(std::string_view text) {
  size_t at = text.size() - 1;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool contains_code(const std::vector<uint32_t>& codes, uint32_t code) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

std::vector<std::string_view> split_white_space(std::string_view text, int64_t max_splits,
                                                bool from_right) {
  std::vector<std::string_view> parts;
  for (;;) {
    text = strip_text(text, nullptr, !from_right, from_right);
    if (text.empty()) break;
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) == max_splits) {
      parts.push_back(text);
      break;
    }
    size_t cut = from_right ? text.size() : 0;
    while (from_right ? cut > 0 : cut < text.size()) {
      size_t next = from_right ? last_code_point(text.substr(0, cut)) : cut;
      const size_t begin = next;
      if (is_space(next_code_point(text, &next))) break;
      cut = from_right ? begin : next;
    }
    parts.push_back(from_right ? text.substr(cut) : text.substr(0, cut));
    text = from_right ? text.substr(0, cut) : text.substr(cut);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::string_view strip_text(std::string_view text, const std::string* chars, bool left,
                            bool right) {
  std::vector<uint32_t> codes;
  if (chars != nullptr) codes = to_code_points(*chars);
  const auto goes = [&](uint32_t code) {
    return chars == nullptr ? is_space(code) : contains_code(codes, code);
  };
  while (left && !text.empty()) {
    size_t next = 0;
    if (!goes(next_code_point(text, &next))) break;
    text.remove_prefix(next);
  }
  while (right && !text.empty()) {
    const size_t begin = last_code_point(text);
    size_t next = begin;
    if (!goes(next_code_point(text, &next))) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::vector<std::string_view> split_text(std::string_view text, const std::string* separator,
                                         int64_t max_splits, bool from_right) {
  if (separator == nullptr) return split_white_space(text, max_splits, from_right);
  std::vector<std::string_view> parts;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    const size_t found = from_right ? text.rfind(*separator) : find_text(text, *separator);
    if (found == std::string_view::npos) break;
    const size_t after = found + separator->size();
    parts.push_back(from_right ? text.substr(after) : text.substr(0, found));
    text = from_right ? text.substr(0, found) : text.substr(after);
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  constexpr std::array<uint32_t, 10> kLineEnds = {'\n', '\r', '\v', '\f',   0x1C,
                                                  0x1D, 0x1E, 0x85, 0x2028, 0x2029};
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const uint32_t code = next_code_point(text, &at);
    if (std::find(kLineEnds.begin(), kLineEnds.end(), code) == kLineEnds.end()) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, end - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         int64_t count) {
  std::string out;
  size_t at = 0;
  if (from.empty()) {
    // Between all code points and at both ends.
    for (int64_t done = 0; count < 0 || done < count; ++done) {
      out += to;
      if (at == text.size()) break;
      const size_t begin = at;
      next_code_point(text, &at);
      out += text.substr(begin, at - begin);
    }
    return out += text.substr(at);
  }
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    const size_t found = find_text(text, from, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
  }
  return out += text.substr(at);
}

size_t code_point_offset(std::string_view text, size_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    next_code_point(text, &at);
    --index;
  }
  return at;
}

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer;
  // The shortest digits that read back as the same number, as d.ddde+XX.
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(result.ptr - buffer.data()));
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t exponent_begin = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(text.data() + exponent_begin, text.data() + text.size(), exponent);
  constexpr int kMinFixed = -4;
  constexpr int kEndFixed = 16;
  if (exponent < kMinFixed || exponent >= kEndFixed) {
    return fmt::format("{}e{}{:02}", text.substr(0, e), exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  if (exponent < 0) {
    digits = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) digits.append(whole + 1 - digits.size(), '0');
    digits.insert(whole, ".");
  }
  return (negative ? "-" : "") + digits;
}

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t code = next_code_point(text, &at);
    if (code == static_cast<uint32_t>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n' || code == '\r' || code == '\t') {
      out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if ((code_point_flags(code) & kUnprintable) == 0) {
      out += text.substr(begin, at - begin);
    } else if (code < 0x100) {
      out += fmt::format("\\x{:02x}", code);
    } else {
      out += code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
    }
  }
  return out += quote;
}

}  // namespace lockstep::jinja
