#include "engine/base/table.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstdio>

#include "engine/base/cli.h"
#include "engine/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr std::string_view kGap = "  ";
constexpr std::string_view kReset = "\x1b[0m";
constexpr std::string_view kBold = "\x1b[1m";

// Calls visit(code_point, bytes) for each character; code_point is -1 for a malformed byte.
template <typename Visit>
void for_each_character(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    utf8proc_int32_t code_point = -1;
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
    const auto size = static_cast<utf8proc_ssize_t>(text.size());
    const utf8proc_ssize_t taken = utf8proc_iterate(bytes, size, &code_point);
    const auto n = static_cast<size_t>(std::max<utf8proc_ssize_t>(taken, 1));
    visit(taken > 0 ? code_point : -1, text.substr(0, n));
    text.remove_prefix(n);
  }
}

// C0 and C1 controls, and the characters that reverse the direction of what follows.
bool upsets_terminal(utf8proc_int32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0) ||
         (code_point >= 0x202a && code_point <= 0x202e) ||
         (code_point >= 0x2066 && code_point <= 0x2069);
}

std::string_view verdict_colour(std::string_view word) {
  if (word == "PASS") return "\x1b[32m";
  if (word == "SKIPPED") return "\x1b[36m";
  if (word == "MISTRUSTED") return "\x1b[33m";
  if (word == "ERROR" || word == "FAIL") return "\x1b[1;31m";
  return {};
}

}  // namespace

int display_width(std::string_view text) {
  int width = 0;
  for_each_character(text, [&](utf8proc_int32_t code_point, std::string_view) {
    width += code_point < 0 ? 1 : utf8proc_charwidth(code_point);
  });
  return width;
}

std::string printable(std::string_view text) {
  std::string result;
  for_each_character(text, [&](utf8proc_int32_t code_point, std::string_view bytes) {
    result += upsets_terminal(code_point) ? kReplacement : bytes;
  });
  return result;
}

std::string escaped(std::string_view text) {
  std::string result;
  for_each_character(text, [&](utf8proc_int32_t code_point, std::string_view bytes) {
    if (code_point == '\n') {
      result += "\\n";
    } else if (code_point == '\t') {
      result += "\\t";
    } else if (code_point == '\r') {
      result += "\\r";
    } else if (code_point == '\\') {
      result += "\\\\";
    } else if (code_point < 0) {
      result += fmt::format("\\x{:02X}", static_cast<unsigned char>(bytes[0]));
    } else if (upsets_terminal(code_point)) {
      result += fmt::format("\\u{{{:X}}}", code_point);
    } else {
      result += bytes;
    }
  });
  return result;
}

std::string coloured_verdict(std::string_view word, bool colour) {
  const std::string_view start = colour ? verdict_colour(word) : std::string_view();
  if (start.empty()) return std::string(word);
  return fmt::format("{}{}{}", start, word, kReset);
}

Table::Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

void Table::add_row(std::vector<std::string> cells) {
  LOCKSTEP_CHECK(cells.size() <= columns_.size());
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::render_row(const std::vector<std::string>& cells, const std::vector<int>& widths,
                              bool colour) const {
  std::string line;
  size_t pending_spaces = 0;  // written only when text follows: no trailing spaces
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto padding = static_cast<size_t>(widths[i] - display_width(cells[i]));
    const bool right = columns_[i].align == Align::right;
    if (i > 0) pending_spaces += kGap.size();
    if (right) pending_spaces += padding;
    if (!cells[i].empty()) {
      line.append(pending_spaces, ' ');
      line += coloured_verdict(cells[i], colour);
      pending_spaces = 0;
    }
    if (!right) pending_spaces += padding;
  }
  return line;
}

std::string Table::render(bool colour) const {
  std::vector<std::string> titles;
  std::vector<int> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    titles.push_back(columns_[i].title);
    int width = display_width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
  }
  const std::string head = render_row(titles, widths, false);
  std::string text = colour ? fmt::format("{}{}{}\n", kBold, head, kReset) : head + "\n";
  for (const auto& row : rows_) text += render_row(row, widths, colour) + "\n";
  return text;
}

void Table::print() const {
  const std::string text = render(stdout_has_colour());
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace lockstep
