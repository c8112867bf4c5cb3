// Cuts a template into tokens, with Jinja's rules for white space around tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::jinja {

enum class TokenKind : uint8_t {
  text,            // outside tags
  variable_begin,  // {{
  variable_end,
  block_begin,  // {%
  block_end,
  name,
  integer,
  real,
  string,  // unescaped
  op,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 0;
  std::string text;
  int64_t integer = 0;
  double real = 0.0;
};

struct WhiteSpaceRules {
  bool trim_blocks = true;    // the line end after a block tag goes
  bool lstrip_blocks = true;  // blanks before a block tag at the start of a line go
};

// Throws Error "line N: ..." for what the language does not have.
std::vector<Token> tokenize_template(std::string_view source, const WhiteSpaceRules& rules);

}  // namespace lockstep::jinja
