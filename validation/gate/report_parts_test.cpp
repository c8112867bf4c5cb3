// Digests of runs, the plot and the page.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/base/temp_dir.h"
#include "validation/gate/bench_figures.h"
#include "validation/gate/html_report.h"
#include "validation/gate/run_digest.h"
#include "validation/gate/svg_plot.h"
#include "validation/testing/synthetic_run.h"

namespace lockstep {
namespace {

using testing::make_synthetic_run;
using testing::SyntheticRun;

TEST(RunDigest, SeesEveryBit) {
  const SyntheticRun run = make_synthetic_run(Precision::fp32);
  const std::string digest = run_digest(run.results);
  EXPECT_EQ(run_digest(make_synthetic_run(Precision::fp32).results), digest);
  EXPECT_EQ(first_difference(run.results, run.results), "");
  const auto after = [&](const std::function<void(EngineResult&)>& change) {
    SyntheticRun other = run;
    change(other.result("beta"));
    EXPECT_NE(run_digest(other.results), digest);
    return first_difference(run.results, other.results);
  };
  EXPECT_EQ(after([](EngineResult& r) { r.ids[5] ^= 1; }), "beta: token 5");
  EXPECT_EQ(after([](EngineResult& r) { r.logits[7].log_sum_exp += 1; }),
            "beta: logits of token 7");
  EXPECT_EQ(after([](EngineResult& r) { r.logits[7].values[15] += 1e-9; }),
            "beta: logits of token 7");
  EXPECT_EQ(after([](EngineResult& r) { r.dump.taps.at("layers.0.mlp").values[0] *= -1; }),
            "beta: layers.0.mlp");
  EXPECT_EQ(after([](EngineResult& r) {
              r.dump.taps.at("layers.0.mlp").shape = {1, 160};
            }),
            "beta: layers.0.mlp");
  EXPECT_EQ(after([](EngineResult& r) { r.dump.taps.erase("embed"); }), "beta: embed");
  EXPECT_EQ(after([](EngineResult& r) {
              r.ids.pop_back();
              r.logits.pop_back();
            }),
            "beta: token 95");
}

TEST(RunDigest, ZerosAndNaNsAreComparedAsBits) {
  SyntheticRun a = make_synthetic_run(Precision::fp32);
  a.result("alpha").dump.taps.at("embed").values[0] = 0.0f;
  SyntheticRun b = a;
  b.result("alpha").dump.taps.at("embed").values[0] = -0.0f;
  EXPECT_EQ(first_difference(a.results, b.results), "alpha: embed");
  b.result("alpha").dump.taps.at("embed").values[0] = std::nanf("");
  EXPECT_EQ(first_difference(b.results, b.results), "");
}

TEST(RunDigest, MissingJobsAreADifference) {
  const SyntheticRun run = make_synthetic_run(Precision::fp32);
  const std::vector<EngineResult> one = {run.results[0]};
  EXPECT_EQ(first_difference(run.results, one), "beta: only in the first run");
  EXPECT_EQ(first_difference(one, run.results), "beta: only in the second run");
}

TEST(SvgPlot, DrawsEveryLineAndEscapes) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::string svg = svg_line_plot(
      {"embed", "<b>"},
      {{"a&b", {1e-6, 2e-5}, false}, {"odd", {0, inf}, false}, {"limit", {2e-5, 2e-5}, true}});
  EXPECT_NE(svg.find("a&amp;b"), std::string::npos);
  EXPECT_NE(svg.find("&lt;b&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  size_t n_lines = 0;
  for (size_t at = svg.find("<polyline"); at != std::string::npos;
       at = svg.find("<polyline", at + 1)) {
    ++n_lines;
  }
  EXPECT_EQ(n_lines, 3u);
  EXPECT_NE(svg_line_plot({"x"}, {{"nothing", {0}, false}}).find("<svg"), std::string::npos);
  const std::string gap = svg_line_plot({"a", "b", "c"}, {{"gap", {1, std::nan(""), 1}, false}});
  EXPECT_NE(gap.find("<polyline"), gap.rfind("<polyline")) << "two pieces";
  EXPECT_EQ(gap.find("nan"), std::string::npos);
}

TEST(HtmlReport, EscapesWhatCameFromOutside) {
  GateReport report;
  GateStep step;
  step.id = "x";
  step.title = "<i>title";
  step.verdict = Verdict::fail;
  step.detail = "<script>alert(1)</script>";
  step.repro = "a && b";
  report.steps.push_back(step);
  ReceiptFacts facts;
  facts.command = "lockstep gate --model '<x>'";
  const std::string html = html_report(report, facts);
  EXPECT_EQ(html.find("<script>"), std::string::npos);
  EXPECT_EQ(html.find("<i>"), std::string::npos);
  EXPECT_EQ(html.find("<x>"), std::string::npos);
  EXPECT_NE(html.find("a &amp;&amp; b"), std::string::npos);
}

TEST(HtmlReport, ShowsWhereTextsPart) {
  GateReport report;
  report.divergences.push_back(
      {"i5", "alpha", 3, "cold", "prefix hit", "same <one>", "same <two>"});
  const std::string html = html_report(report, ReceiptFacts{});
  EXPECT_NE(html.find("alpha, first at token 3"), std::string::npos);
  EXPECT_NE(html.find("same &lt;<span class='fork'>one&gt;</span>"), std::string::npos);
  EXPECT_NE(html.find("same &lt;<span class='fork'>two&gt;</span>"), std::string::npos);
  EXPECT_EQ(html_report(GateReport{}, ReceiptFacts{}).find("texts part"), std::string::npos);
}

TEST(CommonText, KeepsCharactersWhole) {
  EXPECT_EQ(common_text("abc", "abd"), 2u);
  EXPECT_EQ(common_text("abc", "ab"), 2u);
  EXPECT_EQ(common_text("a\u00e4", "a\u00e5"), 1u) << "they share their first byte";
  EXPECT_EQ(common_text("", "x"), 0u);
}

TEST(BenchFigures, OfTheCpuAndOfACard) {
  const TempDir dir;
  const auto read = [&](const std::string& text) {
    write_file_atomically(dir.path() / "b.json", text);
    return read_bench_figures(dir.path() / "b.json");
  };
  const BenchFigures cpu = read(
      R"({"format": "lockstep-bench-cpu", "model": "m", "cores": 2, "cpu_target": "avx2",
          "ops": [{"name": "q<k>", "tp": 1, "threads": 2, "tokens": 4, "unit": "GB/s",
                   "value": {}, "roof": "read", "share": {"median": 0.6, "low": 0.5, "high": 0.7},
                   "floor": 0.5},
                  {"name": "no roof", "tp": 1, "threads": 1, "unit": "s", "value": {}}],
          "engine": []})");
  ASSERT_EQ(cpu.bars.size(), 1u);
  EXPECT_EQ(cpu.bars[0].name, "q<k>, T=4, 1x2 threads, of read");
  EXPECT_EQ(cpu.bars[0].floor, 0.5);
  const BenchFigures card = read(
      R"({"device": "d", "read_bytes_per_s": 100, "rows": [{"op": "linear", "case": "c",
          "tokens": 1, "bytes": 40, "seconds": 0.5}]})");
  EXPECT_DOUBLE_EQ(card.bars.at(0).share, 0.8);
  const std::string svg = svg_bar_plot(cpu.bars);
  EXPECT_NE(svg.find("q&lt;k&gt;"), std::string::npos);
  EXPECT_NE(svg.find("class='limit'"), std::string::npos);
  EXPECT_EQ(svg_bar_plot(card.bars).find("class='limit'"), std::string::npos);
  EXPECT_THROW(read("{}"), Error);
  EXPECT_THROW(read(R"({"read_bytes_per_s": 1})"), Error);
}

}  // namespace
}  // namespace lockstep
