#include "hardware-probe/report/html_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hardware-probe/checks/context.h"

namespace lockstep::probe {
namespace {

constexpr int kWidth = 420, kHeight = 170, kLeft = 42, kRight = 22, kTop = 12, kBottom = 24;
constexpr size_t kMostPoints = 240;
constexpr const char* kColours[] = {"#23639c", "#c0261f", "#1d7f4e", "#a86400",
                                    "#7545a8", "#0d8a8a", "#8a4b0d", "#555555"};

struct Point {
  double x, y;
};

struct Line {
  std::string label, colour;
  bool dashed = false;
  std::vector<Point> points;
};

double nice_step(double span) {
  const double raw = span / 4;
  const double power = std::pow(10, std::floor(std::log10(std::max(raw, 1e-9))));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

struct Axes {
  double x_max = 1, y_min = 0, y_max = 1, step = 1;
  double px(double x) const { return kLeft + x / x_max * (kWidth - kLeft - kRight); }
  double py(double y) const {
    return kHeight - kBottom - (y - y_min) / (y_max - y_min) * (kHeight - kTop - kBottom);
  }
};

Axes axes_of(const std::vector<Line>& lines) {
  double low = 1e30, high = -1e30, end = 1;
  for (const Line& line : lines) {
    for (const Point& p : line.points) {
      low = std::min(low, p.y), high = std::max(high, p.y), end = std::max(end, p.x);
    }
  }
  if (low > high) low = 0, high = 1;
  // A quantity that stands still is drawn in the middle, not as noise over the whole height.
  const double missing = std::max(4.0, 0.04 * high) - (high - low);
  if (missing > 0) low = std::max(0.0, low - missing / 2), high += missing / 2;
  Axes axes;
  axes.x_max = end;
  axes.step = nice_step(high - low);
  axes.y_min = std::floor(low / axes.step) * axes.step;
  axes.y_max = std::max(std::ceil(high / axes.step) * axes.step, axes.y_min + axes.step);
  return axes;
}

std::string grid(const Axes& axes) {
  std::string out;
  for (double y = axes.y_min; y <= axes.y_max + axes.step / 2; y += axes.step) {
    out += fmt::format(
        "<line x1={} x2={} y1={:.1f} y2={:.1f} stroke=\"#dfe4ea\"/><text x={} y={:.1f} "
        "text-anchor=end>{:g}</text>",
        kLeft, kWidth - kRight, axes.py(y), axes.py(y), kLeft - 6, axes.py(y) + 4, y);
  }
  const double step = nice_step(axes.x_max);
  for (double x = 0; x <= axes.x_max; x += step) {
    out += fmt::format("<text x={:.1f} y={} text-anchor=middle>{:g} s</text>", axes.px(x),
                       kHeight - 6, x);
  }
  return out;
}

std::string polyline(const Line& line, const Axes& axes) {
  std::string points;
  const size_t stride = line.points.size() / kMostPoints + 1;
  for (size_t i = 0; i < line.points.size(); i += stride) {
    points += fmt::format("{:.1f},{:.1f} ", axes.px(line.points[i].x), axes.py(line.points[i].y));
  }
  return fmt::format("<polyline fill=none stroke=\"{}\" stroke-width=1.8{} points=\"{}\"/>",
                     line.colour, line.dashed ? " stroke-dasharray=\"5 4\"" : "", points);
}

std::string plot(const char* en, const char* zh, const std::vector<Line>& lines) {
  const Axes axes = axes_of(lines);
  std::string out = fmt::format(
                        "<figure><figcaption><span class=en>{}</span><span "
                        "class=zh>{}</span></figcaption><svg viewBox=\"0 0 {} {}\" role=img>",
                        en, zh, kWidth, kHeight) +
                    grid(axes);
  for (const Line& line : lines) out += polyline(line, axes);
  return out + "</svg></figure>";
}

template <typename Get>
void add_lines(const GpuObservations& gpu, size_t index, Get get, std::vector<Line>& lines) {
  const auto add = [&](const Maybe<Soak>& soak, bool dashed) {
    if (!soak.has_value()) return;
    Line line;
    line.colour = kColours[index % std::size(kColours)];
    line.dashed = dashed;
    for (const Sample& sample : soak->series) {
      if (const Maybe<double> value = get(sample); value.has_value())
        line.points.push_back({sample.t_s, *value});
    }
    if (line.points.size() > 1) lines.push_back(std::move(line));
  };
  add(gpu.soak_all, false);
  add(gpu.soak_solo, true);
}

template <typename Get>
std::string plot_of(const Observations& seen, const char* en, const char* zh, Get get) {
  std::vector<Line> lines;
  for (size_t i = 0; i < seen.gpus.size(); ++i) add_lines(seen.gpus[i], i, get, lines);
  return lines.empty() ? "" : plot(en, zh, lines);
}

std::string legend(const Observations& seen) {
  std::string out = "<p class=mute>";
  for (size_t i = 0; i < seen.gpus.size(); ++i) {
    out += fmt::format("<span style=\"color:{}\">&#9632;</span> gpu{} &nbsp; ",
                       kColours[i % std::size(kColours)], i);
  }
  return out +
         "<span class=en>solid: all cards busy, dashed: alone</span><span "
         "class=zh>实线：全部满载，虚线：单独运行</span></p>";
}

const char* chunk_colour(double ratio) {
  if (ratio < kChunkFail.value) return "#c0261f";
  return ratio < kChunkPass.value ? "#e0a030" : "#7cc49c";
}

}  // namespace

std::string html_escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string soak_plots(const Observations& seen) {
  std::string out;
  out += plot_of(seen, "GPU temperature, °C", "核心温度，℃",
                 [](const Sample& s) { return s.temperature_c; });
  out += plot_of(seen, "SM clock, MHz", "核心频率，MHz", [](const Sample& s) { return s.sm_mhz; });
  out += plot_of(seen, "Power, W", "功耗，W", [](const Sample& s) { return s.power_w; });
  return out.empty() ? "" : "<div class=plots>" + out + "</div>" + legend(seen);
}

std::string memory_map_plot(const std::string& label, const std::vector<ChunkRate>& map,
                            const GpuObservations& gpu) {
  std::vector<double> rates;
  for (const ChunkRate& chunk : map) rates.push_back(chunk.gbps);
  const double middle = median(rates);
  const double width = 1000.0 / static_cast<double>(map.size());
  std::string out = fmt::format(
      "<figure><figcaption>{}: {:.0f} GB/s</figcaption><svg viewBox=\"0 0 1000 34\" role=img>",
      label, middle);
  for (size_t i = 0; i < map.size(); ++i) {
    out += fmt::format(
        "<rect x={:.2f} y=2 width={:.2f} height=30 fill=\"{}\"><title>{} MiB: {:.0f} "
        "GB/s</title></rect>",
        static_cast<double>(i) * width + 0.4, width - 0.8, chunk_colour(map[i].gbps / middle),
        map[i].offset_mib, map[i].gbps);
  }
  for (const Maybe<MemoryTest>* test : {&gpu.memory_cold, &gpu.memory_hot, &gpu.bit_fade}) {
    if (!test->has_value() || (*test)->tested_bytes <= 0) continue;
    for (const MemoryError& error : (*test)->errors) {
      const double x =
          1000.0 * static_cast<double>(error.offset) / static_cast<double>((*test)->tested_bytes);
      out += fmt::format("<rect x={:.2f} y=0 width=3 height=34 fill=\"#000\"/>", x);
    }
  }
  return out + "</svg></figure>";
}

}  // namespace lockstep::probe
