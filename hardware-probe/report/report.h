// The report in its forms: a signed JSON document, a text table, one HTML page.
#pragma once

#include <string>
#include <vector>

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
  std::vector<std::string> lines;  // what was checked, in words; failures begin with "FAILED"
};

// Digest, signature, nonce (when given), public key (when given); then judges the observations
// again and compares, and computes the SM hash that the nonce asks for. Throws Error (usage) when
// the text is no report.
Verification verify_report(const std::string& text, const std::string& origin,
                           const std::string& nonce, const std::string& public_key,
                           const CardDatabase& cards);

}  // namespace lockstep::probe
