#include "engine/text/detokenizer.h"

#include <gtest/gtest.h>

#include "engine/text/text_test_support.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

// Wherever a case is cut into prompt and generation, the deltas of the generation are valid UTF-8
// and together what decoding it at once gives.
TEST(Detokenizer, DeltasJoinToTheFullDecodeForEverySplit) {
  const Tokenizer tokenizer = Tokenizer::load(golden_model_dir());
  for (const TokenizerCase& one : golden_tokenizer_cases()) {
    for (size_t cut = 0; cut <= one.ids.size(); ++cut) {
      Detokenizer detokenizer(tokenizer, false);
      std::string joined;
      for (size_t i = cut; i < one.ids.size(); ++i) {
        const std::string delta = detokenizer.push(one.ids[i]);
        ASSERT_TRUE(is_valid_utf8(delta));
        joined += delta;
      }
      const std::string last = detokenizer.finish();
      ASSERT_TRUE(last.empty() || last == kReplacementCharacter);
      joined += last;
      ASSERT_EQ(joined, tokenizer.decode(std::span(one.ids).subspan(cut)))
          << one.text << " cut at " << cut;
      if (cut == 0) {
        ASSERT_EQ(joined, one.decoded);
      }
    }
  }
}

TEST(Detokenizer, HoldsBackAnIncompleteCharacterOnly) {
  const Tokenizer tokenizer = Tokenizer::load(golden_model_dir());
  Detokenizer detokenizer(tokenizer);
  const std::vector<int32_t> ids =
      tokenizer.encode("\xF0\x9F\xA6\x84");  // U+1F984, spelled in bytes
  ASSERT_GT(ids.size(), 1u);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(detokenizer.push(ids[i]), "");
  EXPECT_EQ(detokenizer.push(ids.back()), "\xF0\x9F\xA6\x84");
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(detokenizer.push(ids[0]), "");
  EXPECT_EQ(detokenizer.push(tokenizer.encode("A")[0]), "\uFFFDA");
  EXPECT_EQ(detokenizer.push(ids[0]), "");
  EXPECT_EQ(detokenizer.push(4066), "");  // special: skipped, and no end of the character
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
}

}  // namespace
}  // namespace lockstep
