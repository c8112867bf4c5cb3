#include "validation/gate/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 346;
constexpr double kLeft = 56;
constexpr double kRight = 56;
constexpr double kTop = 12;
constexpr double kBottom = 110;  // names of columns, turned

struct Axis {
  double low = -9;  // decimal exponents
  double high = -1;

  // Pixel height of a value; what cannot be drawn sits on an edge.
  double y(double value) const {
    const double exponent = std::isfinite(value) && value > 0 ? std::log10(value)
                            : value <= 0                      ? low
                                                              : high;
    const double share = (std::clamp(exponent, low, high) - low) / (high - low);
    return kTop + (1 - share) * (kHeight - kTop - kBottom);
  }
};

// Whole decades around everything that is drawn.
Axis fit_axis(const std::vector<PlotLine>& lines) {
  double low = 0;
  double high = -20;
  for (const PlotLine& line : lines) {
    for (const double value : line.values) {
      if (!std::isfinite(value) || value <= 0) continue;
      low = std::min(low, std::floor(std::log10(value)));
      high = std::max(high, std::ceil(std::log10(value)));
    }
  }
  constexpr double kMaxDecades = 12;
  Axis axis;
  if (high <= low) return axis;
  axis.high = std::min(high, 3.0);
  axis.low = std::max(low, axis.high - kMaxDecades);
  return axis;
}

double x_of(size_t column, size_t n_columns) {
  const double span = kWidth - kLeft - kRight;
  return kLeft + span * (static_cast<double>(column) + 0.5) / static_cast<double>(n_columns);
}

std::string grid(const Axis& axis) {
  std::string svg;
  for (int decade = static_cast<int>(axis.low); decade <= static_cast<int>(axis.high); ++decade) {
    const double y = axis.y(std::pow(10.0, decade));
    svg += fmt::format(
        "<line class='grid' x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}'/>"
        "<text class='tick' x='{3}' y='{4:.1f}' text-anchor='end'>1e{5}</text>\n",
        kLeft, kWidth - kRight, y, kLeft - 6, y + 4, decade);
  }
  return svg;
}

std::string labels(const std::vector<std::string>& columns) {
  std::string svg;
  for (size_t i = 0; i < columns.size(); ++i) {
    const double x = x_of(i, columns.size());
    const double y = kHeight - kBottom + 12;
    svg += fmt::format(
        "<text class='tick' x='{0:.1f}' y='{1}' transform='rotate(60 {0:.1f} {1})'>{2}</text>\n",
        x - 3, y, escape_markup(columns[i]));
  }
  return svg;
}

// Hues spread by the golden angle: neighbours in the list look different.
std::string colour(size_t index) {
  return fmt::format("hsl({:.0f} 65% 45%)", std::fmod(137.508 * static_cast<double>(index), 360.0));
}

// One piece between two gaps.
std::string polyline(const PlotLine& line, size_t index, const std::string& points) {
  if (points.empty()) return {};
  const std::string style = line.is_limit
                                ? "class='limit'"
                                : fmt::format("class='line' style='stroke:{}'", colour(index));
  return fmt::format("<polyline {} points='{}'><title>{}</title></polyline>\n", style, points,
                     escape_markup(line.name));
}

std::string polylines(const PlotLine& line, size_t index, const Axis& axis) {
  std::string svg;
  std::string points;
  for (size_t i = 0; i < line.values.size(); ++i) {
    if (std::isnan(line.values[i])) {
      svg += polyline(line, index, std::exchange(points, {}));
    } else {
      points += fmt::format("{:.1f},{:.1f} ", x_of(i, line.values.size()), axis.y(line.values[i]));
    }
  }
  return svg + polyline(line, index, points);
}

std::string legend(const std::vector<PlotLine>& lines) {
  std::string html = "<p class='legend'>";
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string mark = lines[i].is_limit
                                 ? "<b class='limit-mark'>- -</b>"
                                 : fmt::format("<b style='color:{}'>&#9644;</b>", colour(i));
    html += fmt::format("<span>{} {}</span> ", mark, escape_markup(lines[i].name));
  }
  return html + "</p>\n";
}

}  // namespace

size_t common_text(const std::string& a, const std::string& b) {
  size_t n = 0;
  while (n < std::min(a.size(), b.size()) && a[n] == b[n]) ++n;
  while (n > 0 && n < a.size() && (static_cast<unsigned char>(a[n]) & 0xc0) == 0x80) --n;
  return n;
}

std::string escape_markup(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string svg_line_plot(const std::vector<std::string>& columns,
                          const std::vector<PlotLine>& lines) {
  const Axis axis = fit_axis(lines);
  std::string svg = fmt::format(
      "<svg viewBox='0 0 {} {}' role='img' aria-label='relative L2 along the network'>\n", kWidth,
      kHeight);
  svg += grid(axis) + labels(columns);
  for (size_t i = 0; i < lines.size(); ++i) svg += polylines(lines[i], i, axis);
  return svg + "</svg>\n" + legend(lines);
}

}  // namespace lockstep
