#include "engine/text/pretokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/text/text_test_support.h"

namespace lockstep {
namespace {

std::vector<std::string> pieces_of(const std::string& text, PieceRule rule) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t end = next_piece(text, at, rule);
    pieces.push_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

// tests/pieces.jsonl: 400 strings with the pieces that Hugging Face tokenizers 0.23.2 cuts them
// into with the golden model's pre-tokenizer. The golden vocabulary is too small for its ids to
// show where a word with combining marks is cut, so ids alone do not check that rule.
TEST(Pretokenizer, CutsAsTheReferenceDoes) {
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + "/engine/text/tests/pieces.jsonl");
  std::string line;
  int n = 0;
  int n_other_rule = 0;
  while (std::getline(file, line)) {
    const auto entry = nlohmann::json::parse(line);
    const std::string text = entry.at("text");
    const std::vector<std::string> expected = entry.at("pieces");
    EXPECT_EQ(pieces_of(text, PieceRule::letters_and_marks), expected) << text;
    n_other_rule += pieces_of(text, PieceRule::letters_only) != expected ? 1 : 0;
    ++n;
  }
  EXPECT_EQ(n, 400);
  // The cases notice that marks are left out.
  EXPECT_GT(n_other_rule, 100);
}

TEST(Pretokenizer, KnowsItsRegularExpressionsOnly) {
  PieceRule rule = PieceRule::letters_only;
  const std::string golden = nlohmann::json::parse(
      golden_tokenizer_text())["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
  EXPECT_TRUE(piece_rule_of_regex(golden, &rule));
  EXPECT_EQ(rule, PieceRule::letters_and_marks);
  EXPECT_FALSE(piece_rule_of_regex(golden + " ", &rule));
}

}  // namespace
}  // namespace lockstep
