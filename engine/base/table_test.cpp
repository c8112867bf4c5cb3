#include "engine/base/table.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("\u00fc\u00df"), 2);  // two narrow letters of two bytes
  EXPECT_EQ(display_width("\u6d4b\u8bd5"), 4);  // two wide ideographs
  EXPECT_EQ(display_width("\uff21"), 2);        // full-width A
  EXPECT_EQ(display_width("e\u0301"), 1);       // a combining accent takes no column
  EXPECT_EQ(display_width("\xff\xfe"), 2);      // malformed: one replacement character each
}

TEST(Printable, ReplacesWhatCouldUpsetATerminal) {
  EXPECT_EQ(printable("plain \u6d4b"), "plain \u6d4b");
  EXPECT_EQ(printable("a\x1b[31mb"), "a\ufffd[31mb");
  EXPECT_EQ(printable("a\nb\tc\x7f"),
            "a\ufffd"
            "b\ufffd"
            "c\ufffd");
  EXPECT_EQ(printable("\u0085"), "\ufffd");
  EXPECT_EQ(printable("\u202e"), "\ufffd");
  EXPECT_EQ(printable("\xc3"), "\ufffd");
}

TEST(Escaped, WritesOutWhatCouldUpsetATerminal) {
  EXPECT_EQ(escaped("plain \u6d4b"), "plain \u6d4b");
  EXPECT_EQ(escaped("a\nb\tc\r"), "a\\nb\\tc\\r");
  EXPECT_EQ(escaped("a\\n"), "a\\\\n") << "no newline";
  EXPECT_EQ(escaped("\x1b[31m\u202e\u0085"), "\\u{1B}[31m\\u{202E}\\u{85}");
  EXPECT_EQ(escaped("\xc3"), "\\xC3");
  EXPECT_EQ(printable(escaped("\n\x7f\xff")), escaped("\n\x7f\xff"));
}

TEST(ColouredVerdict, ColoursVerdictsOnly) {
  for (const char* word : {"PASS", "SKIPPED", "MISTRUSTED", "ERROR", "FAIL"}) {
    const std::string text = coloured_verdict(word, true);
    EXPECT_EQ(text.find("\x1b["), 0u) << word;
    EXPECT_NE(text.find(word), std::string::npos);
    EXPECT_EQ(text.substr(text.size() - 4), "\x1b[0m");
    EXPECT_EQ(coloured_verdict(word, false), word);
  }
  EXPECT_EQ(coloured_verdict("PASSED", true), "PASSED");
  EXPECT_NE(coloured_verdict("PASS", true).substr(0, 5),
            coloured_verdict("FAIL", true).substr(0, 5));
}

Table example() {
  Table table({{"check"}, {"value", Align::right}, {"verdict"}});
  table.add_row({"memory", "12", "PASS"});
  table.add_row({"\u5e26\u5bbd", "1234567", "FAIL"});
  table.add_row({"short"});
  return table;
}

TEST(Table, AlignsColumnsWithoutTrailingSpaces) {
  EXPECT_EQ(example().render(false),
            "check     value  verdict\n"
            "memory       12  PASS\n"
            "\u5e26\u5bbd    1234567  FAIL\n"
            "short\n");
}

// Colours must not move a column: without the escape sequences the text is that of a pipe.
TEST(Table, ColoursDoNotChangeTheText) {
  const std::string coloured = example().render(true);
  EXPECT_NE(coloured.find("\x1b[32mPASS\x1b[0m"), std::string::npos);
  std::string plain;
  for (size_t i = 0; i < coloured.size(); ++i) {
    if (coloured[i] == '\x1b') {
      i = coloured.find('m', i);
    } else {
      plain += coloured[i];
    }
  }
  EXPECT_EQ(plain, example().render(false));
}

TEST(Table, HostileCellsStayOnTheirLine) {
  Table table({{"name"}, {"verdict"}});
  table.add_row({"a\nb\x1b[2J", "PASS\r"});
  const std::string text = table.render(true);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find("\x1b[2J"), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(Table, WithoutRowsShowsItsTitles) {
  EXPECT_EQ(Table({{"a"}, {"b"}}).render(false), "a  b\n");
}

TEST(TableDeathTest, TooManyCellsAreAProgrammerError) {
  EXPECT_DEATH(Table({{"a"}}).add_row({"1", "2"}), "internal error");
}

}  // namespace
}  // namespace lockstep
