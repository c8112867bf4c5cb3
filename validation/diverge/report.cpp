#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/table.h"
#include "validation/compare/json_number.h"
#include "validation/diverge/diverge.h"
#include "validation/diverge/drift_class.h"
#include "validation/gate/page_style.h"
#include "validation/gate/svg_plot.h"

namespace lockstep {
namespace {

constexpr size_t kShownForks = 8;   // a prompt
constexpr size_t kShownText = 160;  // bytes around the fork, and the rest of a character
constexpr const char* kStyle = R"(
.SAME, .TIE { color: #1a7f37; }
.DEFECT { color: #cf222e; }
.UNDECIDED, .MISTRUSTED, .DRIFT { color: #b07800; }
.table { white-space: pre; overflow-x: auto; }
)";

std::string show(const Token& token) {
  return token.id >= 0 ? std::to_string(token.id) : token.text;
}

std::string verdict_words(const ForkJudgement& judgement) {
  std::string text(fork_verdict_name(judgement.verdict));
  if (judgement.verdict == ForkVerdict::drift) text += " (" + judgement.explained_by + ")";
  return text;
}

std::vector<const ForkStep*> forks_of(const ForkEvidence& evidence) {
  std::vector<const ForkStep*> forks;
  for (const ForkStep& step : evidence.steps) {
    if (step.fork) forks.push_back(&step);
  }
  return forks;
}

std::string margins(const ForkStep& fork) {
  return fmt::format("{:.4g}{}", fork.drift(), fork.bounded ? " or more" : "");
}

std::string fork_table(const DivergeReport& report, bool colour) {
  Table table({{"prompt"},
               {"step", Align::right},
               {"A"},
               {"B"},
               {"margin A", Align::right},
               {"margin B", Align::right},
               {"drift", Align::right}});
  bool any = false;
  std::string more;
  for (const PromptDivergence& prompt : report.prompts) {
    const auto forks = forks_of(prompt.evidence);
    for (size_t i = 0; i < std::min(forks.size(), kShownForks); ++i) {
      const ForkStep& fork = *forks[i];
      any = true;
      table.add_row({prompt.evidence.name, std::to_string(fork.step), escaped(show(fork.a)),
                     escaped(show(fork.b)), fmt::format("{:.4g}", fork.margin_a),
                     fmt::format("{:.4g}", -fork.margin_b), margins(fork)});
    }
    if (forks.size() > kShownForks) {
      more += fmt::format("{}: and {} more\n", printable(prompt.evidence.name),
                          forks.size() - kShownForks);
    }
  }
  return any ? "forks\n" + table.render(colour) + more : std::string("no forks\n");
}

bool is_inside_character(const std::string& text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

// Whole characters around the fork; "..." where the text goes on.
std::string around(const std::string& text, size_t fork) {
  size_t begin = fork > kShownText / 2 ? fork - kShownText / 2 : 0;
  while (begin > 0 && is_inside_character(text, begin)) --begin;
  size_t end = std::min(text.size(), fork + kShownText / 2);
  while (is_inside_character(text, end)) ++end;
  return fmt::format("{}{} | {}{}", begin > 0 ? "..." : "",
                     escaped(text.substr(begin, fork - begin)),
                     escaped(text.substr(fork, end - fork)), end < text.size() ? "..." : "");
}

std::string side_by_side(const PromptDivergence& prompt) {
  if (prompt.text_a.empty() || prompt.text_a == prompt.text_b) return {};
  const size_t fork = common_text(prompt.text_a, prompt.text_b);
  return fmt::format("{}\n  A: {}\n  B: {}\n", prompt.evidence.name, around(prompt.text_a, fork),
                     around(prompt.text_b, fork));
}

nlohmann::ordered_json judgement_json(const ForkJudgement& judgement) {
  return {{"verdict", fork_verdict_name(judgement.verdict)},
          {"reason", judgement.reason},
          {"explained_by", judgement.explained_by},
          {"culprit", judgement.culprit},
          {"worst_sigmas", finite(judgement.worst_sigmas)},
          {"rms_sigmas", finite(judgement.rms_sigmas)}};
}

std::string html_text(const std::string& text, size_t fork) {
  return fmt::format("<pre>{}<span class='fork'>{}</span></pre>",
                     escape_markup(text.substr(0, fork)), escape_markup(text.substr(fork)));
}

}  // namespace

std::string diverge_text(const DivergeReport& report, bool colour) {
  std::string text =
      fmt::format("A: {}\nB: {}\ndeclared: {}; logit scale: {}\n", printable(report.label_a),
                  printable(report.label_b), report.declared, report.scale_source);
  Table table({{"prompt"},
               {"verdict"},
               {"equal", Align::right},
               {"of", Align::right},
               {"forks", Align::right},
               {"rms sigmas", Align::right},
               {"culprit"}});
  for (const PromptDivergence& prompt : report.prompts) {
    const ForkEvidence& evidence = prompt.evidence;
    table.add_row({evidence.name, verdict_words(prompt.judgement), std::to_string(evidence.prefix),
                   fmt::format("{}{}", evidence.length, evidence.text_only ? " bytes" : ""),
                   std::to_string(forks_of(evidence).size()),
                   fmt::format("{:.3g}", prompt.judgement.rms_sigmas), prompt.judgement.culprit});
  }
  text += table.render(colour) + fork_table(report, colour);
  for (const PromptDivergence& prompt : report.prompts) text += side_by_side(prompt);
  if (!report.has_local) text += "operations were not looked at one by one: no access\n";
  if (!report.judgement.reason.empty()) text += report.judgement.reason + "\n";
  return text + "verdict: " + verdict_words(report.judgement) + "\n";
}

std::string diverge_json(const DivergeReport& report) {
  using Json = nlohmann::ordered_json;
  Json json = judgement_json(report.judgement);
  json["a"] = report.label_a;
  json["b"] = report.label_b;
  json["declared"] = report.declared;
  json["scale"] = report.scale_source;
  json["local"] = report.has_local;
  json["local_limit"] = local_limit(drift_class(report.declared).value());
  json["prompts"] = Json::array();
  for (const PromptDivergence& prompt : report.prompts) {
    Json one = judgement_json(prompt.judgement);
    one["name"] = prompt.evidence.name;
    one["prefix"] = prompt.evidence.prefix;
    one["length"] = prompt.evidence.length;
    one["compared"] = prompt.evidence.steps.size();
    one["text_only"] = prompt.evidence.text_only;
    one["forks"] = Json::array();
    for (const ForkStep* fork : forks_of(prompt.evidence)) {
      one["forks"].push_back({{"step", fork->step},
                              {"a", show(fork->a)},
                              {"b", show(fork->b)},
                              {"margin_a", finite(fork->margin_a)},
                              {"margin_b", finite(-fork->margin_b)},
                              {"drift", finite(fork->drift())},
                              {"lower_bound", fork->bounded}});
    }
    one["local"] = Json::array();
    for (const LocalError& error : prompt.evidence.local) {
      one["local"].push_back({{"tap", error.tap}, {"rel_l2", finite(error.rel_l2)}});
    }
    one["text_a"] = prompt.text_a;
    one["text_b"] = prompt.text_b;
    json["prompts"].push_back(std::move(one));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string diverge_html(const DivergeReport& report) {
  const std::string verdict(fork_verdict_name(report.judgement.verdict));
  std::string html = fmt::format(
      "<!doctype html><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
      "<title>Divergence: {0}</title><style>{1}{8}</style>\n"
      "<h1>Divergence: <span class='{0}'>{2}</span></h1>\n<p>A: <code>{3}</code><br>B: "
      "<code>{4}</code><br>declared: {5}; logit scale: {6}</p>\n<p>{7}</p>\n",
      verdict, kPageStyle, verdict_words(report.judgement), escape_markup(report.label_a),
      escape_markup(report.label_b), report.declared, escape_markup(report.scale_source),
      escape_markup(report.judgement.reason), kStyle);
  html += "<pre class='table'>" + escape_markup(fork_table(report, false)) + "</pre>\n";
  for (const PromptDivergence& prompt : report.prompts) {
    const size_t fork = common_text(prompt.text_a, prompt.text_b);
    html += fmt::format(
        "<h2>{}: <span class='{}'>{}</span></h2><p>the first {} of {} {} are equal; rms {:.3g} "
        "sigmas</p>\n<table><tr><th>A<th>B</tr><tr><td>{}<td>{}</tr></table>\n",
        escape_markup(prompt.evidence.name), fork_verdict_name(prompt.judgement.verdict),
        verdict_words(prompt.judgement), prompt.evidence.prefix, prompt.evidence.length,
        prompt.evidence.text_only ? "bytes of text" : "tokens", prompt.judgement.rms_sigmas,
        html_text(prompt.text_a, fork), html_text(prompt.text_b, fork));
    if (prompt.evidence.local.empty()) continue;
    PlotLine line{prompt.evidence.name, {}, false};
    std::vector<std::string> taps;
    for (const LocalError& error : prompt.evidence.local) {
      taps.push_back(error.tap);
      line.values.push_back(error.rel_l2);
    }
    html += "<h3>Relative L2 along the network</h3>\n" + svg_line_plot(taps, {line});
  }
  return html;
}

}  // namespace lockstep
