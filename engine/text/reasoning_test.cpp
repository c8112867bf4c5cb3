#include "engine/text/reasoning.h"

#include <gtest/gtest.h>

#include "engine/base/philox.h"

namespace lockstep {
namespace {

void expect_split(const std::string& text, bool starts_inside, bool tools,
                  const std::string& reasoning, const std::string& content) {
  const ReasoningDelta whole = split_reasoning(text, starts_inside, tools);
  EXPECT_EQ(whole.reasoning, reasoning) << text;
  EXPECT_EQ(whole.content, content) << text;
  // The same in pieces, whatever their size.
  PhiloxStream random(3);
  for (int round = 0; round < 20; ++round) {
    ReasoningSplitter splitter(starts_inside, tools);
    ReasoningDelta joined;
    for (size_t at = 0; at < text.size();) {
      const size_t n = round == 0 ? 1 : 1 + random.next_below(7);
      const ReasoningDelta delta = splitter.push(text.substr(at, n));
      joined.reasoning += delta.reasoning;
      joined.content += delta.content;
      at += n;
    }
    const ReasoningDelta last = splitter.finish();
    EXPECT_EQ(joined.reasoning + last.reasoning, reasoning) << text;
    EXPECT_EQ(joined.content + last.content, content) << text;
  }
}

TEST(Reasoning, SplitsAtTheFirstEnd) {
  expect_split("because\n</think>\n\nanswer", true, false, "because", "answer");
  expect_split("a</think>b</think>c", true, false, "a", "b</think>c");
  expect_split("a\n\nb\n", true, false, "a\n\nb\n", "");
  expect_split("a </thin k> b", true, false, "a </thin k> b", "");
  expect_split("\n\n</think>\n\n", true, false, "", "");
  expect_split("cut </thi", true, false, "cut </thi", "");
  expect_split("", true, false, "", "");
}

TEST(Reasoning, AnswersWithoutReasoningStayAsTheyAre) {
  expect_split("answer </think> more\n", false, false, "", "answer </think> more\n");
  expect_split("\n <b>x", false, false, "", "\n <b>x");
}

TEST(Reasoning, AModelThatOpensTheBlockItself) {
  expect_split("<think>\nwhy\n</think>\nanswer", false, false, "\nwhy", "answer");
  expect_split("\n<think>why</think>answer", true, false, "why", "answer");
  expect_split("<thin", false, false, "", "<thin");
}

TEST(Reasoning, AToolCallEndsReasoningWhenThereAreTools) {
  expect_split("so\n<tool_call>\nx", true, true, "so", "<tool_call>\nx");
  expect_split("so\n<tool_call>\nx", true, false, "so\n<tool_call>\nx", "");
  expect_split("so</think>\n\n<tool_call>", true, true, "so", "<tool_call>");
}

}  // namespace
}  // namespace lockstep
