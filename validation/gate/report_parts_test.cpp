// Digests of runs, the plot and the page.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

}  // namespace
}  // namespace lockstep
