#include "ci/tidy/code_view.h"

#include <algorithm>
#include <cctype>

namespace lockstep::tidy {
namespace {

void blank(std::string& text, size_t begin, size_t end) {
  for (size_t i = begin; i < std::min(end, text.size()); ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
}

size_t end_of_literal(std::string_view text, size_t quote) {
  for (size_t i = quote + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == text[quote] || text[i] == '\n') {
      return i;
    }
  }
  return text.size();
}

// The offset just behind a raw string whose quote is at `quote`.
size_t end_of_raw_string(std::string_view text, size_t quote) {
  const size_t open = text.find('(', quote);
  if (open == std::string_view::npos) return text.size();
  const std::string close = ")" + std::string(text.substr(quote + 1, open - quote - 1)) + "\"";
  const size_t at = text.find(close, open);
  return at == std::string_view::npos ? text.size() : at + close.size();
}

bool starts_raw_string(std::string_view text, size_t quote) {
  return quote > 0 && text[quote - 1] == 'R' &&
         (quote == 1 || !is_identifier_char(text[quote - 2]));
}

// 1'000'000 holds no character literal.
bool is_digit_separator(std::string_view text, size_t quote) {
  return quote > 0 && std::isxdigit(static_cast<unsigned char>(text[quote - 1])) != 0;
}

void blank_preprocessor(std::string& code) {
  for (size_t at = 0; at < code.size();) {
    size_t end = std::min(code.find('\n', at), code.size());
    const size_t first = code.find_first_not_of(" \t", at);
    if (first < end && code[first] == '#') {
      while (end < code.size() && code[end - 1] == '\\')
        end = std::min(code.find('\n', end + 1), code.size());
      blank(code, at, end);
    }
    at = end + 1;
  }
}

std::string last_identifier(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && !is_identifier_char(text[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && is_identifier_char(text[begin - 1])) --begin;
  return std::string(text.substr(begin, end - begin));
}

// The name of the function whose header is `head`: "int f(int a) const" is f.
std::string function_name(std::string_view head) {
  const size_t open = head.find('(');
  std::string name = last_identifier(head.substr(0, open));
  if (name != "TEST" && name != "TEST_F" && name != "TEST_P") return name;
  const size_t comma = head.find(',', open);
  const size_t close = head.find(')', open);
  if (comma == std::string_view::npos || close < comma) return name;
  return last_identifier(head.substr(0, comma)) + "." + last_identifier(head.substr(0, close));
}

enum class Block { scope, function, other };

Block classify(std::string_view head) {
  for (const char* word : {"namespace", "extern"}) {
    if (find_word(head, word) != std::string_view::npos) return Block::scope;
  }
  const size_t last = head.find_last_not_of(" \n\t");
  if (last == std::string_view::npos || head[last] == '=') return Block::other;
  const size_t paren = head.find('(');
  for (const char* word : {"class", "struct", "union"}) {
    const size_t at = find_word(head, word);
    const bool is_template = find_word(head, "template") != std::string_view::npos;
    if (at != std::string_view::npos &&
        (paren == std::string_view::npos || (at < paren && !is_template))) {
      return Block::scope;
    }
  }
  return paren == std::string_view::npos ? Block::other : Block::function;
}

size_t matching_brace(std::string_view code, size_t open) {
  int depth = 0;
  for (size_t i = open; i < code.size(); ++i) {
    if (code[i] == '{') ++depth;
    if (code[i] == '}' && --depth == 0) return i;
  }
  return code.size();
}

}  // namespace

bool is_identifier_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

size_t find_word(std::string_view code, std::string_view word, size_t from) {
  for (size_t at = code.find(word, from); at != std::string_view::npos;
       at = code.find(word, at + 1)) {
    const bool opens = at == 0 || !is_identifier_char(code[at - 1]);
    const size_t end = at + word.size();
    if (opens && (end == code.size() || !is_identifier_char(code[end]))) return at;
  }
  return std::string_view::npos;
}

std::string code_view(std::string_view text) {
  std::string code(text);
  for (size_t i = 0; i < text.size(); ++i) {
    size_t end = i;
    if (text.substr(i, 2) == "//") {
      end = std::min(text.find('\n', i), text.size());
      blank(code, i, end);
    } else if (text.substr(i, 2) == "/*") {
      const size_t close = text.find("*/", i + 2);
      end = close == std::string_view::npos ? text.size() : close + 2;
      blank(code, i, end);
    } else if (text[i] == '"' && starts_raw_string(text, i)) {
      end = end_of_raw_string(text, i);
      blank(code, i + 1, end - 1);
    } else if (text[i] == '"' || (text[i] == '\'' && !is_digit_separator(text, i))) {
      end = end_of_literal(text, i) + 1;
      blank(code, i + 1, end - 1);
    }
    if (end > i) i = end - 1;
  }
  return code;
}

std::vector<FunctionBody> find_functions(std::string_view view) {
  std::string code(view);
  blank_preprocessor(code);
  std::vector<FunctionBody> found;
  size_t head = 0;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i] == ';' || code[i] == '}') {
      head = i + 1;
    } else if (code[i] == '{') {
      const std::string_view text = std::string_view(code).substr(head, i - head);
      // Style puts a space before a body and none before a braced initialiser.
      const bool opens_body = i > 0 && (code[i - 1] == ' ' || code[i - 1] == '\n');
      const Block block = opens_body ? classify(text) : Block::other;
      if (block == Block::function)
        found.push_back({function_name(text), i, matching_brace(code, i)});
      if (block != Block::scope) i = matching_brace(code, i);
      // A braced initialiser of a member sits inside a constructor's head: what follows is still
      // head.
      if (block != Block::other) head = i + 1;
    }
  }
  return found;
}

}  // namespace lockstep::tidy
