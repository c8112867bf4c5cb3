// C++ text with everything that is not code blanked, and the function bodies in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tidy {

// `text` with comments and the insides of string and character literals turned into spaces. Offsets
// and line breaks stay where they are.
std::string code_view(std::string_view text);

struct FunctionBody {
  std::string name;  // the last identifier before the parameter list; TEST(A, B) is "A.B"
  size_t begin = 0;  // offset of '{'
  size_t end = 0;    // offset of '}'
};

// Function bodies at namespace or class level, in order. `code` is a code_view.
std::vector<FunctionBody> find_functions(std::string_view code);

bool is_identifier_char(char c);
// Where the whole word `word` is next in `code`, or npos.
size_t find_word(std::string_view code, std::string_view word, size_t from = 0);

}  // namespace lockstep::tidy
