#include "engine/text/unicode/unicode.h"

#include <gtest/gtest.h>

#include "engine/base/philox.h"
#include "engine/text/unicode/unicode_data.h"
#include "engine/text/utf8.h"

namespace lockstep {
namespace {

std::string text_of(std::initializer_list<uint32_t> codes) {
  std::string text;
  for (const uint32_t code : codes) append_utf8(text, code);
  return text;
}

TEST(Unicode, HasTheCategoriesOfVersion16) {
  EXPECT_EQ(code_point_flags('a') & (kLetter | kMark | kNumber | kWhiteSpace), kLetter);
  EXPECT_EQ(code_point_flags('5') & (kLetter | kMark | kNumber | kWhiteSpace), kNumber);
  EXPECT_TRUE(code_point_flags(0x0301) & kMark);
  EXPECT_TRUE(code_point_flags(0x1C89) & kLetter);   // new in 16.0
  EXPECT_TRUE(code_point_flags(0x10D40) & kNumber);  // new in 16.0
  EXPECT_FALSE(code_point_flags(0x088F) & kLetter);  // new in 17.0
  EXPECT_EQ(code_point_flags(0x110000), 0);
}

TEST(Unicode, WhiteSpaceIsTheRegexsAndPythons) {
  std::vector<uint32_t> spaces;
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code_point_flags(code) & kWhiteSpace) spaces.push_back(code);
  }
  const std::vector<uint32_t> expected = {9,      10,     11,     12,     13,     0x20,   0x85,
                                          0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                          0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                          0x2029, 0x202F, 0x205F, 0x3000};
  EXPECT_EQ(spaces, expected);
  EXPECT_TRUE(is_python_space(0x1C));
  EXPECT_FALSE(is_python_space(0x200B));
}

TEST(Unicode, ComposesAsVersion9Does) {
  EXPECT_EQ(to_nfc(text_of({'e', 0x301})), text_of({0xE9}));
  EXPECT_EQ(to_nfc(text_of({'a', 0x323, 0x302})), text_of({0x1EAD}));
  EXPECT_EQ(to_nfc(text_of({'a', 0x302, 0x323})), text_of({0x1EAD}));  // reordered first
  EXPECT_EQ(to_nfc(text_of({0x1112, 0x1161, 0x11AB})), text_of({0xD55C}));
  EXPECT_EQ(to_nfc(text_of({0xD558, 0x11AB})), text_of({0xD55C}));
  EXPECT_EQ(to_nfc(text_of({0x2126})), text_of({0x3A9}));        // singleton
  EXPECT_EQ(to_nfc(text_of({0x958})), text_of({0x915, 0x93C}));  // composition exclusion
  EXPECT_EQ(to_nfc(text_of({'a', 0x315, 0x300})), text_of({0xE0, 0x315}));
  // Younger code points neither reorder nor compose.
  EXPECT_EQ(to_nfc(text_of({0x11935, 0x11930})), text_of({0x11935, 0x11930}));
  EXPECT_EQ(to_nfc(text_of({'a', 0x8D3, 0x316, 0x301})), text_of({'a', 0x8D3, 0x316, 0x301}));
}

// Properties of every normalisation form, on text made of the code points that take part in it.
TEST(Unicode, NormalisationIsStable) {
  PhiloxStream random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint32_t n = 1 + random.next_below(8); n > 0; --n) {
      const auto& entry = unicode_data::kDecompositions[random.next_below(
          static_cast<uint32_t>(unicode_data::kDecompositionsSize))];
      const uint32_t pick = random.next_below(4);
      append_utf8(text, pick == 0           ? entry.code
                        : pick == 1         ? entry.first
                        : entry.second != 0 ? entry.second
                                            : 'x');
    }
    const std::string once = to_nfc(text);
    EXPECT_EQ(to_nfc(once), once);
    if (is_surely_nfc(text)) {
      EXPECT_EQ(once, text);
    }
  }
}

TEST(Unicode, MapsCaseAsPythonDoes) {
  EXPECT_EQ(to_upper("straße ŉ ǆ ﬁ"), "STRASSE ʼN Ǆ FI");
  EXPECT_EQ(to_lower("ΑΣ ΑΣΑ Σ İ"), "ας ασα σ i\u0307");
}

}  // namespace
}  // namespace lockstep
