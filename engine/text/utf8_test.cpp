#include "engine/text/utf8.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Utf8, AcceptsWhatUnicodeCallsWellFormed) {
  EXPECT_TRUE(is_valid_utf8(""));
  EXPECT_TRUE(is_valid_utf8("a\xC2\x80\xE0\xA0\x80\xED\x9F\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"));
  EXPECT_FALSE(is_valid_utf8("\xC1\x80"));          // overlong
  EXPECT_FALSE(is_valid_utf8("\xE0\x9F\x80"));      // overlong
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));      // surrogate
  EXPECT_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));  // beyond U+10FFFF
  EXPECT_FALSE(is_valid_utf8("\x80"));
  EXPECT_FALSE(is_valid_utf8("\xE2\x82"));
}

// The examples of the Unicode Standard, table 3-8 and 3-11, and what Python's errors="replace"
// gives.
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("ab\xF0\x9F\x98"), "ab" + r);
  EXPECT_EQ(replace_invalid_utf8("\xF5\xFFz"), r + r + "z");
}

TEST(Utf8, CodePointsGoThereAndBack) {
  std::string text;
  std::vector<uint32_t> codes;
  for (uint32_t code = 1; code < 0x110000; code += 0x3F) {
    if (code >= 0xD800 && code < 0xE000) continue;
    append_utf8(text, code);
    codes.push_back(code);
  }
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_EQ(to_code_points(text), codes);
  EXPECT_EQ(count_code_points(text), codes.size());
}

}  // namespace
}  // namespace lockstep
