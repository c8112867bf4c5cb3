// Escapes in the template's string literals.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::jinja {

// Python's escapes (\n, \t, \\, \', \", \xHH, \uHHHH, \UHHHHHHHH, octal, escaped line end); an
// unknown one keeps its backslash. Returns what is wrong, or null and the text appended to `out`.
const char* unescape_string_literal(std::string_view body, std::string& out);

}  // namespace lockstep::jinja
