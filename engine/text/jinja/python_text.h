// Strings and numbers as Python sees and prints them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/unicode/unicode.h"

namespace lockstep::jinja {

inline bool is_space(uint32_t code) {
  return is_python_space(code);
}

// Like text.find(needle, from), in linear time for every input.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);

// str.strip(chars), lstrip, rstrip: a null `chars` means white space.
std::string_view strip_text(std::string_view text, const std::string* chars, bool left, bool right);

// str.split(separator, max_splits): a null separator splits at runs of white space; max_splits
// below 0 means no limit. `from_right` makes it rsplit.
std::vector<std::string_view> split_text(std::string_view text, const std::string* separator,
                                         int64_t max_splits, bool from_right);

// str.splitlines().
std::vector<std::string_view> split_lines(std::string_view text);

// str.replace(from, to, count): count below 0 means all.
std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         int64_t count);

// The byte offset of code point `index` (at most the length).
size_t code_point_offset(std::string_view text, size_t index);

// repr() of a float and of a string.
std::string real_repr(double value);
std::string string_repr(std::string_view text);

}  // namespace lockstep::jinja
