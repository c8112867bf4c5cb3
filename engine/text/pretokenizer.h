// Cuts a span of text into the pieces that byte-pair encoding works on: a hand-written matcher of
// the one regular expression that the family's tokenizers use.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

enum class PieceRule {
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|
  // ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  letters_and_marks,
  // The same with marks outside words, as the family's earlier generations had it: \p{L}+ and
  // [^\s\p{L}\p{N}]+.
  letters_only,
};

// The rule that a tokenizer.json's regular expression states; false when it is none that is known.
bool piece_rule_of_regex(std::string_view regex, PieceRule* rule);

// The end of the piece that begins at `begin`. `span` is valid UTF-8, begin < span.size(). The end
// of `span` counts as the end of the text.
size_t next_piece(std::string_view span, size_t begin, PieceRule rule);

}  // namespace lockstep
