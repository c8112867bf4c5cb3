// A line plot with a logarithmic axis as inline SVG: relative L2 along the network, against the
// limit.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct PlotLine {
  std::string name;
  std::vector<double> values;  // one a column; values <= 0 or not finite sit on the plot's edges
  bool is_limit = false;       // drawn dashed
};

// `columns` labels the x axis. Text is escaped here.
std::string svg_line_plot(const std::vector<std::string>& columns,
                          const std::vector<PlotLine>& lines);

// Text for HTML and SVG: & < > " ' escaped.
std::string escape_markup(const std::string& text);

}  // namespace lockstep
