#include "engine/text/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/mapped_file.h"
#include "engine/base/philox.h"
#include "engine/text/text_test_support.h"
#include "engine/text/unicode/unicode.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

const Tokenizer& golden_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(golden_model_dir());
  return tokenizer;
}

int count_wrong(const Tokenizer& tokenizer) {
  int n = 0;
  for (const TokenizerCase& one : golden_tokenizer_cases()) {
    if (tokenizer.encode(one.text) != one.ids) ++n;
  }
  return n;
}

Tokenizer from(const nlohmann::json& tokenizer_json) {
  return Tokenizer::from_json(tokenizer_json.dump(), "", "test");
}

TEST(Tokenizer, AgreesWithTheReferenceOnEveryCase) {
  const std::vector<TokenizerCase> cases = golden_tokenizer_cases();
  ASSERT_EQ(cases.size(), 5000u);
  for (const TokenizerCase& one : cases) {
    ASSERT_EQ(golden_tokenizer().encode(one.text), one.ids) << one.text;
    ASSERT_EQ(golden_tokenizer().decode(one.ids), one.decoded) << one.text;
  }
}

// The cases must notice a tokenizer that leaves a rule out.
TEST(Tokenizer, CasesNoticeAMissingRule) {
  nlohmann::json no_nfc = nlohmann::json::parse(golden_tokenizer_text());
  no_nfc["normalizer"] = nullptr;
  EXPECT_GT(count_wrong(from(no_nfc)), 10);

  nlohmann::json no_added = nlohmann::json::parse(golden_tokenizer_text());
  no_added["added_tokens"].erase(no_added["added_tokens"].size() - 1);
  EXPECT_GT(count_wrong(from(no_added)), 0);

  nlohmann::json swapped_merges = nlohmann::json::parse(golden_tokenizer_text());
  std::swap(swapped_merges["model"]["merges"][0], swapped_merges["model"]["merges"][2]);
  EXPECT_GT(count_wrong(from(swapped_merges)), 0);
}

TEST(Tokenizer, AgreesWithTheOraclesPrompts) {
  const auto oracle = nlohmann::json::parse(
      read_text_file(std::string(LOCKSTEP_GOLDEN_DIR) + "/oracle/public.json"));
  int n = 0;
  for (const auto& prompt : oracle.at("prompts")) {
    // The image prompts' ids hold one pad per image token, which the engine expands.
    if (!prompt.at("image").is_null() || !prompt.at("images").is_null()) continue;
    const std::vector<int32_t> ids = prompt.at("ids");
    EXPECT_EQ(golden_tokenizer().encode(prompt.at("prompt").get<std::string>()), ids)
        << prompt.at("name");
    ++n;
  }
  EXPECT_EQ(n, 12);
}

std::string random_text(PhiloxStream& random) {
  static const std::vector<std::string> words = {
      " ",       "  ",           "\n",        "\r\n",    "\t",      "\u3000",
      "\u00a0",  "it's",         "I'LL",      "'\u017f", "e\u0301", "\u1112\u1161\u11ab",
      "温度",    "हिन्दी",        "🙂",      "3.14",    "<|im_",   "<|im_end|>",
      "<think>", "</tool_call>", "def f(x):", "=",       "\u0958",  "²"};
  std::string text;
  for (uint32_t n = 1 + random.next_below(30); n > 0; --n) {
    if (random.next_below(3) > 0) {
      text += words[random.next_below(static_cast<uint32_t>(words.size()))];
      continue;
    }
    uint32_t code = random.next_below(random.next_below(2) == 0 ? 0x3000 : 0x110000);
    if (code >= 0xD800 && code < 0xE000) code = 'z';
    append_utf8(text, code);
  }
  return text;
}

// Decoding spells the text that was encoded: each span between added tokens normalised by itself.
TEST(Tokenizer, DecodeGivesTheNormalisedText) {
  PhiloxStream random(11);
  const Tokenizer& tokenizer = golden_tokenizer();
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(random);
    const std::vector<int32_t> ids = tokenizer.encode(text);
    std::string expected;
    std::string span;
    // Added tokens hold no character that normalisation changes, so cutting at them is enough.
    for (size_t at = 0; at < text.size();) {
      bool found = false;
      for (const char* token : {"<|im_end|>", "<think>", "</tool_call>"}) {
        if (std::string_view(text).substr(at).starts_with(token)) {
          expected += to_nfc(span) + token;
          span.clear();
          at += std::string_view(token).size();
          found = true;
          break;
        }
      }
      if (!found) span += text[at++];
    }
    expected += to_nfc(span);
    EXPECT_EQ(tokenizer.decode(ids), expected);
    for (const int32_t id : ids) EXPECT_TRUE(tokenizer.has_token(id));
  }
}

// Long pieces take another path through the merges than short ones; the cache takes part in
// neither.
TEST(Tokenizer, LongPiecesMergeLikeShortOnes) {
  const Tokenizer& tokenizer = golden_tokenizer();
  const std::vector<int32_t> unit = tokenizer.encode("returnreturn");
  std::string word;
  for (int i = 0; i < 400; ++i) word += "return";
  const std::vector<int32_t> ids = tokenizer.encode(word);
  ASSERT_EQ(ids.size() % 400, 0u);
  EXPECT_EQ(tokenizer.decode(ids), word);
  EXPECT_EQ(unit.size() * 200, ids.size());
  // A megabyte of one letter: quadratic merging would not end.
  const std::string letters(1 << 20, 'a');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(letters)), letters);
}

TEST(Tokenizer, RepeatedTextGivesRepeatedIds) {
  const Tokenizer& tokenizer = golden_tokenizer();
  std::string text;
  std::vector<int32_t> expected;
  for (const TokenizerCase& one : golden_tokenizer_cases()) {
    text += one.text + "<|im_end|>";
    const std::vector<int32_t> ids = tokenizer.encode(one.text + "<|im_end|>");
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(tokenizer.encode(text + text).size(), 2 * expected.size());
  EXPECT_EQ(tokenizer.encode(text), expected);
}

TEST(Tokenizer, InvalidUtf8IsReadAsReplacementCharacters) {
  EXPECT_EQ(golden_tokenizer().encode("a\xFFz\xE2\x82"),
            golden_tokenizer().encode("a\uFFFDz\uFFFD"));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer& tokenizer = golden_tokenizer();
  EXPECT_EQ(tokenizer.added_token_id("<|im_end|>"), 4066);
  EXPECT_FALSE(tokenizer.added_token_id("nothing").has_value());
  EXPECT_TRUE(tokenizer.is_special(4066));
  EXPECT_FALSE(tokenizer.is_special(4072));  // <think>
  EXPECT_EQ(tokenizer.token_bytes(4072), "<think>");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(4090), "");
  EXPECT_FALSE(tokenizer.has_token(4090));
  const std::vector<int32_t> ids = {4072, 4066, 4090, -5, 32};
  EXPECT_EQ(tokenizer.decode(ids), "<think><|im_end|>A");
  EXPECT_EQ(tokenizer.decode(ids, true), "<think>A");
}

}  // namespace
}  // namespace lockstep
