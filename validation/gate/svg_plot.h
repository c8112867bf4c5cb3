// A line plot with a logarithmic axis as inline SVG: relative L2 along the network, against the
// limit. Its classes are those of page_style.h.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct PlotLine {
  std::string name;
  // One a column; NaN leaves a gap, values <= 0 and infinity sit on the plot's edges.
  std::vector<double> values;
  bool is_limit = false;  // drawn dashed
};

// `columns` labels the x axis. Text is escaped here.
std::string svg_line_plot(const std::vector<std::string>& columns,
                          const std::vector<PlotLine>& lines);

// Bytes in which both texts are the same from the start, whole characters only.
size_t common_text(const std::string& a, const std::string& b);

// Text for HTML and SVG: & < > " ' escaped.
std::string escape_markup(const std::string& text);

}  // namespace lockstep
