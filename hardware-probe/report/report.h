// The report in its forms: a signed JSON document, a text table, one HTML page.
#pragma once

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "hardware-probe/report/judgement.h"
#include "hardware-probe/report/profile.h"
#include "hardware-probe/report/signature.h"

namespace lockstep::probe {

struct ReportInput {
  const Observations& seen;
  const Judgement& judgement;  // comparison findings included
  const Profile& profile;
  std::string claim;
  std::string program_version;
};

// Pretty JSON, signed with `key`.
std::string report_to_json(const ReportInput& input, const SigningKey& key);
std::string report_to_text(const ReportInput& input, bool colour);
std::string report_to_html(const ReportInput& input);

struct Verification {
  bool valid = false;
  bool simulated = false;          // of a synthetic machine: says nothing about a card
  std::string verdict;             // the report's own: "REJECT (quick)"
  std::vector<std::string> lines;  // what was checked, in words; failures begin with "FAILED"
};

// Digest, signature, nonce (when given), public key (when given); then judges the observations
// again and compares findings, verdict and ranking, and computes the SM hash that the nonce asks
// for. Throws Error (usage) when the text is no report.
Verification verify_report(const std::string& text, const std::string& origin,
                           const std::string& nonce, const std::string& public_key,
                           const CardDatabase& cards);

// Of `lockstep probe verify`: pass, fail where the report is not valid, mistrusted where it is and
// its figures are simulated.
ExitCode verification_exit_code(const Verification& result);
// The last lines of `lockstep probe verify`: the loud one of a simulation, then the outcome.
std::string verification_text(const Verification& result, const std::string& origin);

}  // namespace lockstep::probe
