#include "engine/text/pretokenizer.h"

#include <cstdint>

#include "engine/text/unicode/unicode.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

constexpr std::string_view kRegexMarks =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kRegexLetters =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A place in the span with the character that stands there.
class Cursor {
 public:
  Cursor(std::string_view span, size_t at) : span_(span), next_(at) { advance(); }

  bool at_end() const { return begin_ == span_.size(); }
  size_t begin() const { return begin_; }
  size_t end() const { return next_; }
  uint32_t code() const { return code_; }
  bool is(uint8_t flags) const { return (flags_ & flags) != 0; }
  bool is_line_end() const { return !at_end() && (code_ == '\r' || code_ == '\n'); }

  void advance() {
    begin_ = next_;
    flags_ = 0;
    code_ = 0;
    if (at_end()) return;
    code_ = next_code_point(span_, &next_);
    flags_ = code_point_flags(code_);
  }

 private:
  std::string_view span_;
  size_t begin_ = 0;
  size_t next_;
  uint32_t code_ = 0;
  uint8_t flags_ = 0;
};

// The letter that 's, 't ... are matched with: case folding makes U+017F an s.
char folded_letter(const Cursor& at) {
  constexpr uint32_t kLongS = 0x17F;
  if (at.code() == kLongS) return 's';
  if (at.code() >= 'A' && at.code() <= 'Z') return static_cast<char>(at.code() - 'A' + 'a');
  return at.code() < 0x80 ? static_cast<char>(at.code()) : '\0';
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d); `begin` itself when it does not match.
size_t match_contraction(Cursor at) {
  const size_t begin = at.begin();
  if (at.code() != '\'') return begin;
  at.advance();
  const char first = folded_letter(at);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at.end();
  at.advance();
  const char second = folded_letter(at);
  const bool matches = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                       (first == 'l' && second == 'l');
  return matches ? at.end() : begin;
}

// [^\r\n\p{L}\p{N}]?WORD+
size_t match_word(Cursor at, uint8_t word) {
  const size_t begin = at.begin();
  if (!at.is(word)) {
    if (at.is(kLetter | kNumber) || at.is_line_end()) return begin;
    at.advance();
    if (!at.is(word)) return begin;
  }
  while (at.is(word)) at.advance();
  return at.begin();
}

// ' ?[^\s WORD \p{N}]+[\r\n]*'
size_t match_symbols(Cursor at, uint8_t word) {
  const size_t begin = at.begin();
  const auto outside = static_cast<uint8_t>(kWhiteSpace | kNumber | word);
  if (at.code() == ' ') at.advance();
  if (at.at_end() || at.is(outside)) return begin;
  while (!at.at_end() && !at.is(outside)) at.advance();
  while (at.is_line_end()) at.advance();
  return at.begin();
}

// \s*[\r\n]+|\s+(?!\S)|\s+ on a run of white space: through its last line end; else all of it at
// the end of the span; else all but its last character, which may belong to the next word.
size_t match_white_space(Cursor at) {
  size_t after_line_end = 0;
  size_t last_begin = at.begin();
  size_t length = 0;
  while (at.is(kWhiteSpace)) {
    if (at.is_line_end()) after_line_end = at.end();
    last_begin = at.begin();
    ++length;
    at.advance();
  }
  if (after_line_end != 0) return after_line_end;
  return at.at_end() || length == 1 ? at.begin() : last_begin;
}

}  // namespace

bool piece_rule_of_regex(std::string_view regex, PieceRule* rule) {
  if (regex == kRegexMarks) {
    *rule = PieceRule::letters_and_marks;
  } else if (regex == kRegexLetters) {
    *rule = PieceRule::letters_only;
  } else {
    return false;
  }
  return true;
}

size_t next_piece(std::string_view span, size_t begin, PieceRule rule) {
  const auto word =
      static_cast<uint8_t>(rule == PieceRule::letters_and_marks ? kLetter | kMark : kLetter);
  const Cursor at(span, begin);
  size_t end = match_contraction(at);
  if (end != begin) return end;
  end = match_word(at, word);
  if (end != begin) return end;
  if (at.is(kNumber)) return at.end();
  end = match_symbols(at, word);
  if (end != begin) return end;
  return match_white_space(at);
}

}  // namespace lockstep
