#include "engine/text/stop_strings.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/philox.h"

namespace lockstep {
namespace {

struct Stopped {
  std::string text;
  std::optional<size_t> matched;
};

Stopped run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopStrings matcher(stops);
  Stopped result;
  for (const std::string& piece : pieces) result.text += matcher.push(piece);
  if (!matcher.matched()) result.text += matcher.finish();
  result.matched = matcher.matched();
  return result;
}

// By definition: the occurrence that ends first, the longest of those that end together.
Stopped naive(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const bool ends_here = text.substr(0, end).ends_with(stops[i]);
      if (ends_here && (!best || stops[i].size() > stops[*best].size())) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopStrings, MatchAcrossPieces) {
  EXPECT_EQ(run({"END"}, {"abE", "N", "Dxyz"}).text, "ab");
  EXPECT_EQ(run({"END"}, {"abE", "NE", "ND"}).text, "abEN");
  EXPECT_EQ(run({"END"}, {"abE", "N"}).text, "abEN");
  EXPECT_EQ(run({"aab"}, {"aaa", "aab"}).text, "aaa");
  EXPECT_EQ(run({"停"}, {"请停止"}).text, "请");
  EXPECT_EQ(run({}, {"x"}).text, "x");
}

TEST(StopStrings, NothingComesAfterAMatch) {
  StopStrings matcher({"x"});
  EXPECT_EQ(matcher.push("axb"), "a");
  EXPECT_EQ(matcher.push("c"), "");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_EQ(matcher.matched(), 0u);
}

TEST(StopStrings, HoldsBackNoMoreThanABeginning) {
  StopStrings matcher({"\n\nUser:"});
  EXPECT_EQ(matcher.push("hello\n"), "hello");
  EXPECT_EQ(matcher.push("\nUs"), "");
  EXPECT_EQ(matcher.push("ual"), "\n\nUsual");
}

TEST(StopStrings, EmptyStopIsRefused) {
  EXPECT_THROW(StopStrings({"a", ""}), Error);
}

TEST(StopStrings, AgreeWithTheDefinitionHoweverTextIsCut) {
  PhiloxStream random(17);
  const auto any_text = [&](uint32_t n) {
    std::string text;
    for (; n > 0; --n) text += static_cast<char>('a' + random.next_below(2));
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (uint32_t n = 1 + random.next_below(3); n > 0; --n)
      stops.push_back(any_text(1 + random.next_below(6)));
    const std::string text = any_text(random.next_below(30));
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random.next_below(6);
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    const Stopped expected = naive(stops, text);
    const Stopped actual = run(stops, pieces);
    EXPECT_EQ(actual.text, expected.text);
    EXPECT_EQ(actual.matched, expected.matched);
  }
}

}  // namespace
}  // namespace lockstep
