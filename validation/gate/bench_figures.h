// Figures of `lockstep bench cpu --json` and `lockstep bench ops --json`, for the report's plots.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// One bar: what was reached of the roof that the same run measured.
struct BenchBar {
  std::string name;
  double share = 0;  // median over runs
  double low = 0;
  double high = 0;
  double floor = 0;  // what the design asks for; 0 for none
};

struct BenchFigures {
  std::string title;
  std::vector<BenchBar> bars;
};

// Throws Error (usage) that names the file for anything else.
BenchFigures read_bench_figures(const std::filesystem::path& file);

// Horizontal bars with their spread and floor as inline SVG. Text is escaped here.
std::string svg_bar_plot(const std::vector<BenchBar>& bars);

}  // namespace lockstep
