#include "validation/compare/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"

namespace lockstep {
namespace {

constexpr const char* kRed = "\x1b[31m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kPlain = "\x1b[0m";

const char* colour_of(Verdict verdict) {
  if (verdict == Verdict::pass) return kGreen;
  return verdict == Verdict::skipped || verdict == Verdict::mistrusted ? kYellow : kRed;
}

std::string paint(const std::string& text, Verdict verdict, bool colour) {
  return colour ? colour_of(verdict) + text + kPlain : text;
}

// "layers.3.mixer (attention)" where the kind of the mixer is known.
std::string place(const std::string& tap, const std::vector<std::string>& kinds) {
  const int layer = tap_layer(tap);
  const bool known = layer >= 0 && static_cast<size_t>(layer) < kinds.size();
  return known && tap.ends_with(".mixer")
             ? fmt::format("{} ({})", tap, kinds[static_cast<size_t>(layer)])
             : tap;
}

size_t name_width(const std::vector<PromptReport>& prompts) {
  size_t width = 6;
  for (const PromptReport& prompt : prompts) width = std::max(width, prompt.name.size());
  return width;
}

std::string prompt_line(const PromptReport& prompt, const std::vector<std::string>& kinds,
                        size_t width, bool colour) {
  const std::string verdict = fmt::format("{:<10}", verdict_name(prompt.verdict));
  return fmt::format("{:<{}}  {} {:>9.2e}  {:<24} {:>9.2e}  {:>3}/{:<3} {:>9.2e} {:>9.2e}  {}\n",
                     prompt.name, width, paint(verdict, prompt.verdict, colour),
                     prompt.worst_rel_l2, prompt.worst_rel_tap, 1 - prompt.worst_cos,
                     prompt.greedy.n_match, prompt.greedy.length, prompt.greedy.worst_margin_err,
                     prompt.greedy.worst_logprob_err, place(prompt.first_bad, kinds));
}

// Share of its limit that the worst tap of a prompt uses: what "worst prompt" means.
double worst_share(const PromptReport& prompt) {
  double share = -1;
  for (const TapRow& row : prompt.taps) {
    if (row.limit.rel_l2 > 0) share = std::max(share, row.diff.rel_l2 / row.limit.rel_l2);
  }
  return share;
}

const PromptReport* worst_prompt(const CompareReport& report) {
  const PromptReport* worst = nullptr;
  for (const PromptReport& prompt : report.prompts) {
    if (prompt.skipped) continue;
    const bool first = worst == nullptr;
    if (first || std::pair(prompt.verdict, worst_share(prompt)) >
                     std::pair(worst->verdict, worst_share(*worst))) {
      worst = &prompt;
    }
  }
  return worst;
}

std::string cell(const PromptReport& prompt, const std::string& tap, bool colour) {
  const auto row = std::find_if(prompt.taps.begin(), prompt.taps.end(),
                                [&](const TapRow& candidate) { return candidate.tap == tap; });
  if (row == prompt.taps.end()) return fmt::format("{:>22}", "-");
  const std::string share =
      row->limit.rel_l2 > 0 ? fmt::format("{:.2e} ({:.0f} %)", row->diff.rel_l2,
                                          100 * std::min(row->diff.rel_l2 / row->limit.rel_l2, 1e6))
                            : std::string(verdict_name(row->verdict));
  return paint(fmt::format("{:>22}", share), row->verdict, colour);
}

// Relative L2 of every branch, and the share of the limit that it uses.
std::string layer_view(const PromptReport& prompt, const std::vector<std::string>& kinds,
                       bool colour) {
  int n_layers = 0;
  for (const TapRow& row : prompt.taps) n_layers = std::max(n_layers, tap_layer(row.tap) + 1);
  std::string text =
      fmt::format("\n{}: relative L2 (share of its limit)\n{:<18}{:>22}{:>22}{:>22}{:>22}\n",
                  prompt.name, "layer", "mixer", "mlp", "out", "decode out");
  text += fmt::format("{:<18}{:>22}{:>22}{}\n", "embed", "", "", cell(prompt, "embed", colour));
  for (int layer = 0; layer < n_layers; ++layer) {
    const auto at = static_cast<size_t>(layer);
    const std::string label =
        at < kinds.size() ? fmt::format("{} {}", layer, kinds[at]) : std::to_string(layer);
    const std::string base = fmt::format("layers.{}.", layer);
    text += fmt::format("{:<18}{}{}{}{}\n", label, cell(prompt, base + "mixer", colour),
                        cell(prompt, base + "mlp", colour), cell(prompt, base + "out", colour),
                        cell(prompt, "decode/" + base + "out", colour));
  }
  text +=
      fmt::format("{:<18}{:>22}{:>22}{}{}\n", "final_norm", "", "",
                  cell(prompt, "final_norm", colour), cell(prompt, "decode/final_norm", colour));
  for (const TapRow& row : prompt.taps) {
    if (row.tap.starts_with("state/")) {
      text += fmt::format("{:<40}{}\n", row.tap, cell(prompt, row.tap, colour));
    }
  }
  return text;
}

std::string skipped_lines(const CompareReport& report) {
  std::map<std::string, int> count;
  for (const PromptReport& prompt : report.prompts) {
    if (prompt.skipped) ++count[prompt.reasons.empty() ? "" : prompt.reasons[0]];
  }
  std::string text;
  for (const auto& [reason, n] : count) {
    text += fmt::format("not checked: {} prompts: {}\n", n, reason);
  }
  return text;
}

}  // namespace

std::vector<std::string> mixer_kinds(const std::string& model) {
  std::vector<std::string> kinds;
  try {
    const auto json = nlohmann::json::parse(read_text_file(model + "/config.json"));
    const auto& config = json.contains("text_config") ? json["text_config"] : json;
    if (config.contains("layer_types")) {
      for (const auto& type : config["layer_types"]) {
        kinds.emplace_back(type == "full_attention" ? "attention" : "GDN");
      }
      return kinds;
    }
    const int n_layers = std::clamp(config.value("num_hidden_layers", 0), 0, 4096);
    const int interval = config.value("full_attention_interval", 0);
    for (int layer = 0; interval > 0 && layer < n_layers; ++layer) {
      kinds.emplace_back((layer + 1) % interval == 0 ? "attention" : "GDN");
    }
  } catch (const std::exception&) {
    // Only labels depend on it; the engine has the say on a broken config.
    kinds.clear();
  }
  return kinds;
}

std::string coloured_verdict(Verdict verdict, bool colour) {
  return paint(std::string(verdict_name(verdict)), verdict, colour);
}

std::string report_text(const CompareReport& report, const std::vector<std::string>& kinds,
                        const TextStyle& style) {
  const size_t width = name_width(report.prompts);
  std::string text =
      fmt::format("{:<{}}  {:<10} {:>9}  {:<24} {:>9}  {:<7} {:>9} {:>9}  {}\n", "prompt", width,
                  "verdict", "rel L2", "at", "1 - cos", "tokens", "margin", "logprob", "first bad");
  for (const PromptReport& prompt : report.prompts) {
    if (!prompt.skipped) text += prompt_line(prompt, kinds, width, style.colour);
  }
  text += skipped_lines(report);
  const PromptReport* worst = worst_prompt(report);
  if (style.verbose && worst != nullptr) text += layer_view(*worst, kinds, style.colour);
  for (const PromptReport& prompt : report.prompts) {
    if (prompt.skipped || prompt.reasons.empty()) continue;
    const size_t shown = style.verbose ? prompt.reasons.size() : 1;
    for (size_t i = 0; i < shown; ++i) {
      text += fmt::format("{}: {}\n", prompt.name, prompt.reasons[i]);
    }
    if (shown < prompt.reasons.size()) {
      text += fmt::format("{}: {} more (--verbose)\n", prompt.name, prompt.reasons.size() - shown);
    }
  }
  for (const std::string& reason : report.reasons) text += reason + "\n";
  return text + "verdict: " + coloured_verdict(report.verdict, style.colour) + "\n";
}

std::string dump_report_text(const DumpReport& report, const TextStyle& style) {
  std::string text = fmt::format("{:<44} {:<10} {:>9} {:>9} {:>10}  {}\n", "tensor", "verdict",
                                 "rel L2", "1 - cos", "max ulp", "reason");
  for (const TapRow& row : report.rows) {
    const std::string verdict = fmt::format("{:<10}", verdict_name(row.verdict));
    text += fmt::format("{:<44} {} {:>9.2e} {:>9.2e} {:>10}  {}\n", row.tap,
                        paint(verdict, row.verdict, style.colour), row.diff.rel_l2,
                        1 - row.diff.worst_cos, row.diff.max_ulp, row.reason);
  }
  if (report.rows.empty()) text += "the dumps hold no tensor\n";
  if (!report.not_checked.empty()) {
    text += fmt::format("not checked: {} taps that the dump does not promise\n",
                        report.not_checked.size());
  }
  if (!report.first_bad.empty()) text += "first bad: " + report.first_bad + "\n";
  return text + "verdict: " + coloured_verdict(report.verdict, style.colour) + "\n";
}

}  // namespace lockstep
