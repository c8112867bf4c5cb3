#include "engine/text/utf8.h"

#include <algorithm>

namespace lockstep {
namespace {

// Length of the sequence that a lead byte starts and the allowed range of its second byte
// (the Unicode Standard, table 3-7). Length 0: no lead byte.
struct LeadRule {
  size_t length;
  uint8_t second_min;
  uint8_t second_max;
};

LeadRule lead_rule(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead < 0xF0) {
    return {3, static_cast<uint8_t>(lead == 0xE0 ? 0xA0 : 0x80),
            static_cast<uint8_t>(lead == 0xED ? 0x9F : 0xBF)};
  }
  if (lead < 0xF5) {
    return {4, static_cast<uint8_t>(lead == 0xF0 ? 0x90 : 0x80),
            static_cast<uint8_t>(lead == 0xF4 ? 0x8F : 0xBF)};
  }
  return {0, 0, 0};
}

}  // namespace

Utf8Head utf8_head(std::string_view text) {
  const LeadRule rule = lead_rule(static_cast<uint8_t>(text[0]));
  if (rule.length == 0) return {Utf8Head::Kind::invalid, 1};
  for (size_t i = 1; i < rule.length; ++i) {
    if (i == text.size()) return {Utf8Head::Kind::truncated, i};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t min = i == 1 ? rule.second_min : 0x80;
    const uint8_t max = i == 1 ? rule.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Head::Kind::invalid, i};
  }
  return {Utf8Head::Kind::valid, rule.length};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    if (head.kind != Utf8Head::Kind::valid) return false;
    text.remove_prefix(head.length);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    out += head.kind == Utf8Head::Kind::valid ? text.substr(0, head.length) : kReplacementCharacter;
    text.remove_prefix(head.length);
  }
  return out;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
  } else {
    if (code < 0x10000) {
      out += static_cast<char>(0xE0 | (code >> 12));
    } else {
      out += static_cast<char>(0xF0 | (code >> 18));
      out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    }
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
  }
  out += static_cast<char>(0x80 | (code & 0x3F));
}

std::vector<uint32_t> to_code_points(std::string_view text) {
  std::vector<uint32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) codes.push_back(next_code_point(text, &at));
  return codes;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace lockstep
