#include "validation/gate/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "build_identity.h"
#include "validation/gate/bench_figures.h"
#include "validation/gate/page_style.h"
#include "validation/gate/svg_plot.h"
#include "validation/repro_line.h"

namespace lockstep {
namespace {

constexpr const char* kStyle = R"(
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { font-weight: 600; }
.PASS { color: #1a7f37; } .SKIPPED, .MISTRUSTED { color: #b07800; } .ERROR, .FAIL { color: #cf222e; }
td.text { width: 50%; } .bar { fill: #4878d0; } .spread { stroke: currentColor; }
.limit-mark { color: #cf222e; } .legend span { margin-right: 1rem; white-space: nowrap; font-size: .85em; }
)";

std::string verdict_html(Verdict verdict) {
  return fmt::format("<span class='verdict {0}'>{0}</span>", verdict_name(verdict));
}

std::string steps_table(const GateReport& report) {
  std::string html =
      "<table>\n<tr><th>check<th>verdict<th>proven able to fail<th>seconds<th>what was found"
      "</tr>\n";
  for (const GateStep& step : report.steps) {
    html += fmt::format(
        "<tr id='{}'><td>{}<td>{}<td>{}<td class='number'>{:.1f}<td>{}<br><code>{}</code></tr>\n",
        escape_markup(step.id), escape_markup(step.title), verdict_html(step.verdict),
        step.proven ? "yes" : "no", step.seconds, escape_markup(step.detail),
        escape_markup(pasteable(step.repro)));
  }
  return html + "</table>\n";
}

// One line a check that is not green, each a link to its repro line.
std::string red_links(const GateReport& report) {
  std::string html;
  for (const GateStep& step : report.steps) {
    if (step.verdict == Verdict::pass) continue;
    html += fmt::format("<li>{} <a href='#{}'>{}</a>\n", verdict_html(step.verdict),
                        escape_markup(step.id), escape_markup(step.title));
  }
  const std::string proven = fmt::format("<p>{} checks, {} proven able to fail in this run.</p>\n",
                                         report.steps.size(), report.n_proven());
  return html.empty() ? proven : proven + "<h2>Not passed</h2>\n<ul>\n" + html + "</ul>\n";
}

std::string mutation_section(const MutationReport& mutation) {
  if (mutation.total == 0) return {};
  std::string html =
      fmt::format("<h2>Mutants</h2>\n<p>{} of {} killed, {} equivalent: score {:.3f}</p>\n<ul>\n",
                  mutation.killed, mutation.total, mutation.equivalent, mutation.score());
  for (const std::string& line : mutation.survivors) html += "<li>" + escape_markup(line) + "\n";
  return html + "</ul>\n";
}

std::string bench_table(const BenchReport& bench) {
  std::string html = fmt::format(
      "<h3>Times on {}, which reads {:.0f} GB/s</h3>\n<table>\n<tr><th>op<th>case<th>T<th>MB"
      "<th>us<th>of the bandwidth</tr>\n",
      escape_markup(bench.device), bench.read_bytes_per_s / 1e9);
  for (const BenchRow& row : bench.rows) {
    html += fmt::format(
        "<tr><td>{}<td>{}<td class='number'>{}<td class='number'>{:.1f}<td class='number'>{:.2f}"
        "<td class='number'>{:.0f} %</tr>\n",
        escape_markup(row.op), escape_markup(row.what), row.n_tokens, row.bytes / 1e6,
        row.seconds * 1e6, 100 * bench.share(row));
  }
  return html + "</table>\n";
}

// The op programs and the times; nothing when no card was asked.
std::string ops_section(const OpsReport& ops) {
  if (ops.programs.empty() && ops.bench.rows.empty()) return {};
  std::string html = fmt::format("<h2>CUDA ops on {} ({})</h2>\n", escape_markup(ops.card.name),
                                 escape_markup(ops.card.uuid));
  html += "<table>\n<tr><th>program<th>verdict<th>passed<th>failed<th>skipped</tr>\n";
  for (const OpProgramRun& program : ops.programs) {
    html += fmt::format(
        "<tr><td>{}<td>{}<td class='number'>{}<td class='number'>{}<td class='number'>{}</tr>\n",
        escape_markup(program.program.program), verdict_html(judge_op_test(program.run)),
        program.run.count(OpCase::State::passed), program.run.count(OpCase::State::failed),
        program.run.count(OpCase::State::skipped));
  }
  html += "</table>\n";
  return ops.bench.rows.empty() ? html : html + bench_table(ops.bench);
}

// Every tap that some prompt compared, in the order of the network.
std::vector<std::string> plotted_taps(const CompareReport& report) {
  std::set<std::string, TapOrder> taps;
  for (const PromptReport& prompt : report.prompts) {
    for (const TapRow& row : prompt.taps) {
      if (row.has_positions && row.limit.rel_l2 > 0) taps.insert(row.tap);
    }
  }
  return {taps.begin(), taps.end()};
}

const TapRow* row_of(const PromptReport& prompt, const std::string& tap) {
  const auto at = std::find_if(prompt.taps.begin(), prompt.taps.end(),
                               [&](const TapRow& row) { return row.tap == tap; });
  return at == prompt.taps.end() ? nullptr : &*at;
}

// What could not be computed is the worst, and no gap.
double shown(double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

// One line a prompt: `value` of each of its taps, a gap where it has none.
std::vector<PlotLine> prompt_lines(const CompareReport& report,
                                   const std::vector<std::string>& taps,
                                   double (*value)(const TapRow&)) {
  std::vector<PlotLine> lines;
  for (const PromptReport& prompt : report.prompts) {
    if (prompt.skipped) continue;
    PlotLine line{prompt.name, {}, false};
    for (const std::string& tap : taps) {
      const TapRow* row = row_of(prompt, tap);
      line.values.push_back(row == nullptr ? std::nan("") : shown(value(*row)));
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string plot(const CompareReport& report) {
  const std::vector<std::string> taps = plotted_taps(report);
  if (taps.empty()) return "<p>Nothing was compared.</p>\n";
  std::vector<PlotLine> lines =
      prompt_lines(report, taps, [](const TapRow& row) { return row.diff.rel_l2; });
  PlotLine limit{"limit (the tightest of all prompts)", {}, true};
  limit.values.assign(taps.size(), std::numeric_limits<double>::infinity());
  for (const PromptReport& prompt : report.prompts) {
    for (size_t i = 0; i < taps.size() && !prompt.skipped; ++i) {
      const TapRow* row = row_of(prompt, taps[i]);
      if (row != nullptr && row->limit.rel_l2 > 0) {
        limit.values[i] = std::min(limit.values[i], row->limit.rel_l2);
      }
    }
  }
  lines.push_back(std::move(limit));
  const std::string cosines = svg_line_plot(
      taps, prompt_lines(report, taps, [](const TapRow& row) { return 1 - row.diff.worst_cos; }));
  return "<h3>Relative L2 along the network</h3>\n" + svg_line_plot(taps, lines) +
         "<h3>1 - cosine of the worst position</h3>\n" + cosines;
}

std::string prompts_table(const CompareReport& report) {
  std::string html =
      "<table>\n<tr><th>prompt<th>verdict<th>worst relative L2<th>at<th>tokens<th>margin error"
      "<th>first bad</tr>\n";
  for (const PromptReport& prompt : report.prompts) {
    if (prompt.skipped) continue;
    html += fmt::format(
        "<tr><td>{}<td>{}<td class='number'>{:.2e}<td>{}<td class='number'>{}/{}"
        "<td class='number'>{:.2e}<td>{}</tr>\n",
        escape_markup(prompt.name), verdict_html(prompt.verdict), prompt.worst_rel_l2,
        escape_markup(prompt.worst_rel_tap), prompt.greedy.n_match, prompt.greedy.length,
        prompt.greedy.worst_margin_err, escape_markup(prompt.first_bad));
  }
  return html + "</table>\n";
}

std::string comparison_section(const GateComparison& comparison) {
  return fmt::format("<h2>{} {}</h2>\n{}{}", escape_markup(comparison.title),
                     verdict_html(comparison.report.verdict), plot(comparison.report),
                     prompts_table(comparison.report));
}

// A text, marked from where the other one parts from it.
std::string text_cell(const std::string& text, size_t fork) {
  return fmt::format("<td class='text'><pre>{}<span class='fork'>{}</span></pre>",
                     escape_markup(text.substr(0, fork)), escape_markup(text.substr(fork)));
}

std::string divergence_section(const std::vector<GateDivergence>& divergences) {
  std::string html = divergences.empty() ? "" : "<h2>Where texts part</h2>\n";
  for (const GateDivergence& one : divergences) {
    const size_t fork = common_text(one.text_a, one.text_b);
    html += fmt::format(
        "<h3><a href='#{0}'>{0}</a>: {1}, first at token {2}</h3>\n<table><tr><th>{3}<th>{4}</tr>"
        "\n<tr>{5}{6}</tr></table>\n",
        escape_markup(one.check), escape_markup(one.prompt), one.step, escape_markup(one.label_a),
        escape_markup(one.label_b), text_cell(one.text_a, fork), text_cell(one.text_b, fork));
  }
  return html;
}

std::string bench_section(const std::vector<std::filesystem::path>& files) {
  std::string html = files.empty() ? "" : "<h2>Benchmarks: shares of measured roofs</h2>\n";
  for (const std::filesystem::path& file : files) {
    const BenchFigures figures = read_bench_figures(file);
    html += "<h3>" + escape_markup(figures.title) + "</h3>\n" + svg_bar_plot(figures.bars);
  }
  return html;
}

std::string facts_table(const GateReport& report, const ReceiptFacts& facts) {
  const std::string commit = *kBuildCommit == '\0'
                                 ? std::string("unknown")
                                 : std::string(kBuildCommit) + (kBuildDirty ? " with changes" : "");
  const std::vector<std::pair<std::string, std::string>> rows = {
      {"started", facts.started},
      {"took", fmt::format("{:.1f} s", facts.seconds)},
      {"policy", facts.options.policy.name},
      {"command", facts.command},
      {"version", kBuildVersion},
      {"commit", commit},
      {"model", facts.options.model.string()},
      {"oracle", facts.options.oracle.string()},
      {"machine", report.machine.line()},
      {"planted fault", facts.options.fault.empty() ? "none" : facts.options.fault}};
  std::string html = "<table>\n";
  for (const auto& [name, value] : rows) {
    html += fmt::format("<tr><th>{}<td><code>{}</code></tr>\n", name, escape_markup(value));
  }
  return html + "</table>\n";
}

}  // namespace

std::string html_report(const GateReport& report, const ReceiptFacts& facts) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width'>\n<title>Lockstep gate: {0}</title>\n"
      "<style>{1}{3}</style></head><body>\n<h1>Lockstep gate: {2}</h1>\n",
      verdict_name(report.verdict), kPageStyle, verdict_html(report.verdict), kStyle);
  html +=
      facts_table(report, facts) + red_links(report) + "<h2>Checks</h2>\n" + steps_table(report);
  html += ops_section(report.ops);
  html += mutation_section(report.mutation);
  html += divergence_section(report.divergences) + bench_section(facts.options.bench);
  html += "<h2>Not checked</h2>\n<ul>\n";
  for (const std::string& line : report.not_checked) html += "<li>" + escape_markup(line) + "\n";
  html += "</ul>\n";
  if (!report.notes.empty()) html += "<h2>Receipts and waivers</h2>\n<ul>\n";
  for (const std::string& line : report.notes) html += "<li>" + escape_markup(line) + "\n";
  if (!report.notes.empty()) html += "</ul>\n";
  for (const GateComparison& comparison : report.comparisons) {
    html += comparison_section(comparison);
  }
  return html + "</body></html>\n";
}

}  // namespace lockstep
