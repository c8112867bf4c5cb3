#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/table.h"
#include "validation/compare/isolate.h"
#include "validation/compare/json_number.h"

namespace lockstep {
namespace {

// Everything with `verbose`, else the culprits and their victims.
std::string tap_table(const IsolatedPrompt& prompt, bool colour, bool verbose) {
  Table table({{"tap"},
               {"verdict"},
               {"plain", Align::right},
               {"isolated", Align::right},
               {"limit", Align::right},
               {"what it is"}});
  bool any = false;
  for (const IsolatedTap& tap : prompt.taps) {
    const bool bad = tap.verdict != Verdict::pass;
    if (!bad && !tap.victim && !verbose) continue;
    any = true;
    const char* role = tap.tap == prompt.culprit ? "culprit"
                       : bad                     ? "wrong"
                       : tap.victim              ? "victim"
                                                 : "";
    table.add_row({tap.tap, std::string(verdict_name(tap.verdict)),
                   fmt::format("{:.2e}", tap.propagated), fmt::format("{:.2e}", tap.local),
                   fmt::format("{:.2e}", tap.limit), role});
  }
  return any ? table.render(colour) : std::string();
}

}  // namespace

std::string isolation_text(const IsolationReport& report, bool colour, bool verbose) {
  std::string text;
  for (const IsolatedPrompt& prompt : report.prompts) {
    text += fmt::format("{}: {}{}{}\n", prompt.name,
                        coloured_verdict(verdict_name(prompt.verdict), colour),
                        prompt.culprit.empty() ? "" : ", culprit " + prompt.culprit,
                        prompt.reason.empty() ? "" : ": " + prompt.reason);
    text += tap_table(prompt, colour, verbose);
  }
  if (report.prompts.empty()) text += "no prompt in scope\n";
  return text + "verdict: " + coloured_verdict(verdict_name(report.verdict), colour) + "\n";
}

std::string isolation_json(const IsolationReport& report) {
  using Json = nlohmann::ordered_json;
  Json json = {{"verdict", verdict_name(report.verdict)}, {"prompts", Json::array()}};
  for (const IsolatedPrompt& prompt : report.prompts) {
    Json taps = Json::array();
    for (const IsolatedTap& tap : prompt.taps) {
      taps.push_back({{"tap", tap.tap},
                      {"verdict", verdict_name(tap.verdict)},
                      {"plain_rel_l2", finite(tap.propagated)},
                      {"isolated_rel_l2", finite(tap.local)},
                      {"limit", finite(tap.limit)},
                      {"victim", tap.victim}});
    }
    json["prompts"].push_back({{"name", prompt.name},
                               {"verdict", verdict_name(prompt.verdict)},
                               {"culprit", prompt.culprit},
                               {"reason", prompt.reason},
                               {"taps", std::move(taps)}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
