#include "validation/gate/bench_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"
#include "engine/base/mapped_file.h"
#include "validation/gate/svg_plot.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr double kWidth = 960;
constexpr double kNames = 320;  // pixels left of the bars
constexpr double kRow = 20;
constexpr double kTop = 24;

BenchBar cpu_bar(const Json& series) {
  const Json& share = series.at("share");
  BenchBar bar{
      fmt::format(
          "{}{}, {}x{} threads, of {}", series.at("name").get<std::string>(),
          series.contains("tokens") ? fmt::format(", T={}", series["tokens"].get<int64_t>()) : "",
          series.at("tp").get<int>(), series.at("threads").get<int>(),
          series.at("roof").get<std::string>()),
      share.at("median").get<double>(), share.at("low").get<double>(),
      share.at("high").get<double>(), series.value("floor", 0.0)};
  return bar;
}

BenchFigures cpu_figures(const Json& json) {
  BenchFigures figures{
      fmt::format("{}, {} cores, {}", json.at("model").get<std::string>(),
                  json.at("cores").get<int>(), json.at("cpu_target").get<std::string>()),
      {}};
  for (const char* list : {"ops", "engine"}) {
    for (const Json& series : json.at(list)) {
      if (series.contains("share")) figures.bars.push_back(cpu_bar(series));
    }
  }
  return figures;
}

BenchFigures ops_figures(const Json& json) {
  BenchFigures figures{json.at("device").get<std::string>(), {}};
  const double roof = json.at("read_bytes_per_s").get<double>();
  for (const Json& row : json.at("rows")) {
    const double share = row.at("bytes").get<double>() / row.at("seconds").get<double>() / roof;
    figures.bars.push_back(
        {fmt::format("{} {}, T={}", row.at("op").get<std::string>(),
                     row.at("case").get<std::string>(), row.at("tokens").get<int64_t>()),
         share, share, share, 0});
  }
  return figures;
}

double x_of(double share, double most) {
  return kNames + (kWidth - kNames - 60) * std::clamp(share / most, 0.0, 1.0);
}

std::string bar_svg(const BenchBar& bar, double y, double most) {
  std::string svg = fmt::format(
      "<text class='tick' x='{0}' y='{1:.0f}' text-anchor='end'>{2}</text>\n"
      "<rect class='bar' x='{3}' y='{4:.0f}' width='{5:.1f}' height='12'/>\n"
      "<line class='spread' x1='{6:.1f}' x2='{7:.1f}' y1='{8:.0f}' y2='{8:.0f}'/>\n"
      "<text class='tick' x='{9:.1f}' y='{1:.0f}'>{10:.0f} %</text>\n",
      kNames - 8, y + 11, escape_markup(bar.name), kNames, y, x_of(bar.share, most) - kNames,
      x_of(bar.low, most), x_of(bar.high, most), y + 6, x_of(bar.high, most) + 6, 100 * bar.share);
  if (bar.floor > 0) {
    svg +=
        fmt::format("<line class='limit' x1='{0:.1f}' x2='{0:.1f}' y1='{1:.0f}' y2='{2:.0f}'/>\n",
                    x_of(bar.floor, most), y - 3, y + 15);
  }
  return svg;
}

}  // namespace

BenchFigures read_bench_figures(const std::filesystem::path& file) {
  const Json json = Json::parse(read_text_file(file), nullptr, false);
  try {
    if (json.is_object() && json.value("format", Json()) == Json("lockstep-bench-cpu")) {
      return cpu_figures(json);
    }
    if (json.is_object() && json.contains("read_bytes_per_s")) return ops_figures(json);
  } catch (const Json::exception& error) {
    fail_with(ExitCode::usage, "{}: {}", file.string(), json_problem(error));
  }
  fail_with(ExitCode::usage, "{}: no figures of 'lockstep bench cpu|ops --json'", file.string());
}

std::string svg_bar_plot(const std::vector<BenchBar>& bars) {
  double most = 1;
  for (const BenchBar& bar : bars) most = std::max(most, bar.high);
  const double height = kTop + kRow * static_cast<double>(bars.size()) + 4;
  std::string svg = fmt::format(
      "<svg viewBox='0 0 {} {}' role='img' aria-label='shares of roofs'>\n", kWidth, height);
  for (const double tick : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    svg += fmt::format(
        "<line class='grid' x1='{0:.1f}' x2='{0:.1f}' y1='{1}' y2='{2}'/><text class='tick' "
        "x='{0:.1f}' y='{3}' text-anchor='middle'>{4:.0f} %</text>\n",
        x_of(tick, most), kTop - 6, height, kTop - 10, 100 * tick);
  }
  double y = kTop;
  for (const BenchBar& bar : bars) {
    svg += bar_svg(bar, y, most);
    y += kRow;
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep
