#include "engine/text/jinja/lexer.h"

#include <array>
#include <charconv>

#include "engine/base/error.h"
#include "engine/text/jinja/python_text.h"
#include "engine/text/jinja/string_literal.h"
#include "engine/text/utf8.h"

namespace lockstep::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Line ends become \n and one at the very end goes.
std::string normalised_source(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      text += '\n';
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, const WhiteSpaceRules& rules)
      : text_(normalised_source(source)), rules_(rules) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) lex_outside();
    push(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { fail("line {}: {}", line_, what); }

  bool at(std::string_view expected, size_t offset = 0) const {
    return std::string_view(text_)
        .substr(std::min(at_ + offset, text_.size()))
        .starts_with(expected);
  }

  Token& push(TokenKind kind, std::string text) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    return token;
  }

  // Moves to `end` and counts the lines on the way.
  void move_to(size_t end) {
    for (; at_ < end; ++at_) {
      if (text_[at_] == '\n') ++line_;
    }
  }

  void skip_white_space() {
    size_t end = at_;
    while (end < text_.size()) {
      size_t next = end;
      if (!is_space(next_code_point(text_, &next))) break;
      end = next;
    }
    move_to(end);
  }

  // Emits the text before the tag that begins at `tag`, less what its sign and lstrip_blocks take
  // away.
  void push_text_before(size_t tag, char sign, bool is_variable) {
    std::string_view text = std::string_view(text_).substr(at_, tag - at_);
    if (sign == '-') {
      text = strip_text(text, nullptr, false, true);
    } else if (sign != '+' && rules_.lstrip_blocks && !is_variable) {
      const size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
      if (line_begin > 0 || line_starting_) {
        if (strip_text(text.substr(line_begin), nullptr, true, false).empty()) {
          text = text.substr(0, line_begin);
        }
      }
    }
    if (!text.empty()) push(TokenKind::text, std::string(text));
    move_to(tag);
  }

  char sign_at(size_t place) const {
    return place < text_.size() && (text_[place] == '-' || text_[place] == '+') ? text_[place]
                                                                                : '\0';
  }

  // The next {{, {% or {#.
  size_t find_tag() const {
    for (size_t i = text_.find('{', at_); i != std::string::npos; i = text_.find('{', i + 1)) {
      if (i + 1 < text_.size() &&
          (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) {
        return i;
      }
    }
    return std::string::npos;
  }

  void lex_outside() {
    const size_t tag = find_tag();
    if (tag == std::string::npos) {
      push(TokenKind::text, text_.substr(at_));
      move_to(text_.size());
      return;
    }
    const char type = text_[tag + 1];
    const char sign = sign_at(tag + 2);
    push_text_before(tag, sign, type == '{');
    move_to(tag + (sign != '\0' ? 3 : 2));
    line_starting_ = false;
    if (type == '#') {
      lex_comment();
    } else if (type == '{') {
      push(TokenKind::variable_begin, "{{");
      lex_inside(false);
    } else if (is_raw_tag("raw")) {
      lex_raw();
    } else {
      push(TokenKind::block_begin, "{%");
      lex_inside(true);
    }
  }

  void lex_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == std::string::npos) refuse("a comment without an end");
    const char sign = end > at_ ? sign_at(end - 1) : '\0';
    move_to(end + 2);
    finish_tag(sign, true);
  }

  // What follows the closing bracket of a tag.
  void finish_tag(char sign, bool trims_line_end) {
    const size_t before = at_;
    if (sign == '-') {
      skip_white_space();
    } else if (sign != '+' && trims_line_end && rules_.trim_blocks && at("\n")) {
      move_to(at_ + 1);
    }
    line_starting_ = at_ > before && text_[at_ - 1] == '\n';
  }

  // Whether NAME and the end of the block stand here.
  bool is_raw_tag(std::string_view name) const {
    size_t i = at_;
    while (i < text_.size() && is_ascii_space(text_[i])) ++i;
    if (!std::string_view(text_).substr(i).starts_with(name)) return false;
    i += name.size();
    while (i < text_.size() && is_ascii_space(text_[i])) ++i;
    if (sign_at(i) != '\0') ++i;
    return std::string_view(text_).substr(i).starts_with("%}");
  }

  static bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

  // Moves behind the %} of a raw or endraw tag; returns the sign before it.
  char leave_raw_tag() {
    const size_t end = text_.find("%}", at_);
    const char sign = sign_at(end - 1);
    move_to(end + 2);
    return sign;
  }

  void lex_raw() {
    finish_tag(leave_raw_tag(), false);
    for (size_t tag = text_.find("{%", at_); tag != std::string::npos;
         tag = text_.find("{%", tag + 2)) {
      const char sign = sign_at(tag + 2);
      const size_t saved = at_;
      at_ = tag + (sign != '\0' ? 3 : 2);
      const bool ends = is_raw_tag("endraw");
      at_ = saved;
      if (!ends) continue;
      push_text_before(tag, sign, false);
      finish_tag(leave_raw_tag(), true);
      return;
    }
    refuse("a raw block without an end");
  }

  // The tokens of one tag, up to and with its closing bracket.
  void lex_inside(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    std::string open_brackets;
    for (;;) {
      skip_white_space();
      if (at_ == text_.size()) refuse(is_block ? "a {% without %}" : "a {{ without }}");
      if (open_brackets.empty()) {
        const char sign = sign_at(at_);
        const bool signed_end = (sign == '-' || (sign == '+' && is_block)) && at(close, 1);
        if (signed_end || at(close)) {
          push(is_block ? TokenKind::block_end : TokenKind::variable_end, std::string(close));
          move_to(at_ + (signed_end ? 3 : 2));
          finish_tag(signed_end ? sign : '\0', is_block);
          return;
        }
      }
      lex_token(open_brackets);
    }
  }

  void lex_token(std::string& open_brackets) {
    const char c = text_[at_];
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < text_.size() && (is_name_start(text_[end]) || is_digit(text_[end]))) ++end;
      push(TokenKind::name, text_.substr(at_, end - at_));
      move_to(end);
    } else if (is_digit(c)) {
      lex_number();
    } else if (c == '\'' || c == '"') {
      lex_string(c);
    } else {
      lex_operator(open_brackets);
    }
  }

  // Digits with single underscores between them, from `begin`; the end.
  size_t digits_end(size_t begin) const {
    size_t i = begin;
    while (i < text_.size() &&
           (is_digit(text_[i]) ||
            (text_[i] == '_' && i > begin && i + 1 < text_.size() && is_digit(text_[i + 1])))) {
      ++i;
    }
    return i;
  }

  void lex_number() {
    size_t end = digits_end(at_);
    bool is_real = false;
    if (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
      is_real = true;
      end = digits_end(end + 1);
    }
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      const size_t digits = end + (sign_at(end + 1) != '\0' ? 2 : 1);
      if (digits < text_.size() && is_digit(text_[digits])) {
        is_real = true;
        end = digits_end(digits);
      }
    }
    if (end < text_.size() && is_name_start(text_[end])) refuse("a number of an unsupported form");
    std::string digits;
    for (size_t i = at_; i < end; ++i) {
      if (text_[i] != '_') digits += text_[i];
    }
    Token& token = push(is_real ? TokenKind::real : TokenKind::integer, digits);
    const char* last = digits.data() + digits.size();
    const auto result = is_real ? std::from_chars(digits.data(), last, token.real)
                                : std::from_chars(digits.data(), last, token.integer);
    if (result.ec != std::errc()) refuse("a number out of range: " + digits);
    move_to(end);
  }

  void lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) refuse("a string without an end");
    std::string value;
    const char* problem =
        unescape_string_literal(std::string_view(text_).substr(at_ + 1, end - at_ - 1), value);
    if (problem != nullptr) refuse(problem);
    push(TokenKind::string, std::move(value));
    move_to(end + 1);
  }

  void lex_operator(std::string& open_brackets) {
    static constexpr std::array<std::string_view, 26> kOperators = {
        "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", "|", ",", ".", ":", ";"};
    for (const std::string_view op : kOperators) {
      if (!at(op)) continue;
      if (op == "(" || op == "[" || op == "{") open_brackets += op;
      if (op == ")" || op == "]" || op == "}") {
        const char opener = op == ")" ? '(' : op == "]" ? '[' : '{';
        if (open_brackets.empty() || open_brackets.back() != opener)
          refuse(fmt::format("unexpected '{}'", op));
        open_brackets.pop_back();
      }
      push(TokenKind::op, std::string(op));
      move_to(at_ + op.size());
      return;
    }
    size_t next = at_;
    next_code_point(text_, &next);
    refuse(fmt::format("unexpected character '{}'", text_.substr(at_, next - at_)));
  }

  std::string text_;
  WhiteSpaceRules rules_;
  size_t at_ = 0;
  int line_ = 1;
  // True at the start, and behind a tag that took its line's end with it.
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source, const WhiteSpaceRules& rules) {
  if (!is_valid_utf8(source)) fail("line 1: the template is not valid UTF-8");
  return Lexer(source, rules).run();
}

}  // namespace lockstep::jinja
