#include "validation/compare/report_json.h"

#include <nlohmann/json.hpp>

#include "validation/compare/json_number.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json tap_json(const TapRow& row) {
  Json json = {{"tap", row.tap},
               {"verdict", verdict_name(row.verdict)},
               {"rel_l2", finite(row.diff.rel_l2)},
               {"rel_l2_limit", row.limit.rel_l2},
               {"cos", row.diff.worst_cos},
               {"max_ulp", row.diff.max_ulp},
               {"n_nonfinite", row.diff.n_nonfinite},
               {"worst_at", row.diff.worst_at}};
  if (row.limit.one_minus_cos < 2) json["one_minus_cos_limit"] = row.limit.one_minus_cos;
  if (!row.reason.empty()) json["reason"] = row.reason;
  return json;
}

Json prompt_json(const PromptReport& prompt, bool with_taps) {
  Json json = {{"name", prompt.name},
               {"skipped", prompt.skipped},
               {"verdict", verdict_name(prompt.verdict)},
               {"worst_rel_l2", finite(prompt.worst_rel_l2)},
               {"worst_rel_l2_tap", prompt.worst_rel_tap},
               {"worst_cos", prompt.worst_cos},
               {"worst_cos_tap", prompt.worst_cos_tap},
               {"first_bad", prompt.first_bad},
               {"greedy_match", prompt.greedy.n_match},
               {"greedy_len", prompt.greedy.length},
               {"greedy_judged", prompt.greedy.n_judged},
               {"first_mismatch", prompt.greedy.first_mismatch},
               {"worst_margin_err", finite(prompt.greedy.worst_margin_err)},
               {"worst_logprob_err", finite(prompt.greedy.worst_logprob_err)},
               {"max_margin_at_mismatch", prompt.greedy.max_margin_at_mismatch},
               {"draft_rounds", prompt.drafts.n_rounds},
               {"drafts_judged", prompt.drafts.n_judged},
               {"drafts_match", prompt.drafts.n_match},
               {"drafts_accepted", prompt.drafts.n_accepted},
               {"margin_rms", finite(prompt.greedy.margin_rms)},
               {"positions", prompt.n_positions},
               {"reasons", prompt.reasons}};
  if (with_taps) {
    json["taps"] = Json::array();
    for (const TapRow& row : prompt.taps) json["taps"].push_back(tap_json(row));
  }
  return json;
}

// Text from files may hold any bytes; what is no UTF-8 is replaced rather than refused.
std::string dump(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string report_json(const CompareReport& report, bool with_taps) {
  Json json = {{"verdict", verdict_name(report.verdict)},
               {"reasons", report.reasons},
               {"prompts", Json::array()}};
  for (const PromptReport& prompt : report.prompts) {
    json["prompts"].push_back(prompt_json(prompt, with_taps));
  }
  return dump(json);
}

std::string dump_report_json(const DumpReport& report) {
  Json json = {{"verdict", verdict_name(report.verdict)},
               {"first_bad", report.first_bad},
               {"not_checked", report.not_checked},
               {"tensors", Json::array()}};
  for (const TapRow& row : report.rows) json["tensors"].push_back(tap_json(row));
  return dump(json);
}

std::string error_json(const std::string& message) {
  return dump(
      {{"verdict", verdict_name(Verdict::error)}, {"error", message}, {"prompts", Json::array()}});
}

}  // namespace lockstep
