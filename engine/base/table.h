// Tables for people: aligned columns, colours on a terminal, the same text without colours in a
// pipe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Columns that UTF-8 text takes on a terminal: 2 for wide East Asian characters, 0 for combining
// ones.
int display_width(std::string_view text);

// `text` with every byte that could upset a terminal (control characters, malformed UTF-8) replaced
// by U+FFFD.
std::string printable(std::string_view text);

// `text` on one line and without loss: what printable() replaces is written out as \n, \t, \r,
// \u{202E} or, for malformed UTF-8, \xC3, and a backslash is doubled.
std::string escaped(std::string_view text);

// The word in the colour of its verdict (PASS, SKIPPED, MISTRUSTED, ERROR, FAIL; any other word
// stays plain).
std::string coloured_verdict(std::string_view word, bool colour);

enum class Align { left, right };

struct TableColumn {
  std::string title;
  Align align = Align::left;
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns);

  // Missing cells at the end are empty; more cells than columns are a programmer error. A cell that
  // is a verdict word takes its colour.
  void add_row(std::vector<std::string> cells);

  // Lines that end in newlines; no trailing spaces.
  std::string render(bool colour) const;

  // On stdout, with colours if it is a terminal that takes them.
  void print() const;

 private:
  std::string render_row(const std::vector<std::string>& cells, const std::vector<int>& widths,
                         bool colour) const;

  std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep
