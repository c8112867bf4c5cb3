// Character properties, canonical composition and case mapping, with the Unicode versions that the
// reference tokenizer has (generate_tables.py). All strings are valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Bits of code_point_flags().
inline constexpr uint8_t kLetter = 1;      // \p{L}, Unicode 16.0
inline constexpr uint8_t kMark = 2;        // \p{M}
inline constexpr uint8_t kNumber = 4;      // \p{N}
inline constexpr uint8_t kWhiteSpace = 8;  // White_Space, the \s of the tokenizer's regex
inline constexpr uint8_t kNfcCheck = 16;   // may make a string differ from its NFC, Unicode 9.0
inline constexpr uint8_t kCased = 32;
inline constexpr uint8_t kCaseIgnorable = 64;
inline constexpr uint8_t kUnprintable = 128;  // Python's repr() escapes it

uint8_t code_point_flags(uint32_t code);

// Python's str.isspace() for one code point: White_Space and U+001C to U+001F.
bool is_python_space(uint32_t code);

// Normalization Form C as of Unicode 9.0.
std::string to_nfc(std::string_view text);
// True when to_nfc(text) is known to be `text` without computing it; false decides nothing.
bool is_surely_nfc(std::string_view text);

// Python's str.upper() and str.lower(): full mappings, final sigma by context.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);

}  // namespace lockstep
