#include <nlohmann/json.hpp>

#include "engine/base/json_problem.h"
#include "hardware-probe/collect/measure.h"
#include "hardware-probe/kernels/golden.h"
#include "hardware-probe/report/report.h"

namespace lockstep::probe {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "lockstep-probe-report";

Json optional_json(const std::optional<double>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json text_json(const Text& text) {
  return {{"en", text.en}, {"zh", text.zh}};
}

Json finding_json(const Finding& finding) {
  return {{"check", finding.check},
          {"name", finding.name},
          {"target", finding.target},
          {"status", status_name(finding.status)},
          {"value", optional_json(finding.value)},
          {"unit", finding.unit},
          {"threshold", optional_json(finding.threshold)},
          {"source", finding.source},
          {"reason", text_json(finding.reason)},
          {"remedy", text_json(finding.remedy)}};
}

Json findings_json(const std::vector<Finding>& findings) {
  Json out = Json::array();
  for (const Finding& finding : findings) out.push_back(finding_json(finding));
  return out;
}

Json ranking_json(const std::vector<Text>& ranking) {
  Json out = Json::array();
  for (const Text& line : ranking) out.push_back(text_json(line));
  return out;
}

// What digest and signature cover.
std::string signed_text(Json document) {
  document.erase("digest");
  document.erase("signature");
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class Verifier {
 public:
  Verifier(const Json& document, Verification& out) : document_(document), out_(out) {}

  void check(bool good, const std::string& what) {
    out_.lines.push_back((good ? "ok      " : "FAILED  ") + what);
    valid_ = valid_ && good;
  }
  bool valid() const { return valid_; }

  std::string field(const char* object, const char* name) const {
    if (object == nullptr) return document_.value(name, "");
    if (!document_.contains(object) || !document_.at(object).is_object()) return "";
    return document_.at(object).value(name, "");
  }

 private:
  const Json& document_;
  Verification& out_;
  bool valid_ = true;
};

// Of a finding that only the older report could give again; what no status is called is a failure.
Finding compare_finding(const Json& json) {
  Finding finding;
  finding.status = Status::fail;
  for (const Status status :
       {Status::pass, Status::info, Status::warn, Status::skip, Status::inconclusive}) {
    if (json.value("status", "") == status_name(status)) finding.status = status;
  }
  return finding;
}

// The verdict of the observations, judged again here, must be the one that was written.
void verify_judgement(const Json& document, const Observations& seen, const CardDatabase& cards,
                      Verifier& verifier) {
  const std::string claim = document.value("claim", "");
  if (!claim.empty() && cards.find(claim) == nullptr) {
    verifier.check(false, "the claim names a card of the database");
    return;
  }
  const Judgement again = judge(seen, cards, claim);
  Json own = Json::array();
  std::vector<Finding> all = again.findings;
  for (const Json& finding : document.at("findings")) {
    if (finding.value("check", "") == "compare") {
      all.push_back(compare_finding(finding));
    } else {
      own.push_back(finding);
    }
  }
  verifier.check(own == findings_json(again.findings), "the findings follow from the observations");
  verifier.check(verifier.field("verdict", "name") == verdict_name(verdict_of(all)),
                 "the verdict follows from the findings");
  verifier.check(document.at("ranking") == ranking_json(again.ranking),
                 "the ranking follows from the findings");
}

// The text of a stranger, for a terminal.
std::string plain(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

// Nothing of an older run can be replayed: the hashes depend on the nonce.
void verify_freshness(const Observations& seen, Verifier& verifier) {
  for (size_t i = 0; i < seen.gpus.size(); ++i) {
    const auto& proof = seen.gpus[i].sm_proof;
    if (!proof.has_value()) continue;
    const std::string target = gpu_target(static_cast<int>(i));
    const uint64_t golden =
        golden_sm_hash(seed_of(seen.nonce, "C15" + target), proof->matrix_units);
    verifier.check(golden == proof->golden, target + ": the SM hashes belong to this nonce");
  }
}

}  // namespace

std::string report_to_json(const ReportInput& input, const SigningKey& key) {
  const Judgement& judgement = input.judgement;
  Json document;
  document["format"] = kFormat;
  document["version"] = 1;
  document["tool"] = {{"name", "lockstep-probe"}, {"version", input.program_version}};
  document["run"] = {{"backend", input.seen.backend},
                     {"mode", mode_name(input.seen.mode)},
                     {"nonce", input.seen.nonce},
                     {"started", input.seen.started},
                     {"ended", input.seen.ended}};
  document["claim"] = input.claim;
  document["cards"] = judgement.rows;
  document["verdict"] = {{"name", verdict_name(judgement.verdict)},
                         {"text", text_json(verdict_text(judgement.verdict, input.seen.mode))},
                         {"exit_code", verdict_exit_code(judgement.verdict)}};
  document["coverage"] = {{"checks_run", judgement.coverage.checks_run},
                          {"checks_total", judgement.coverage.checks_total},
                          {"memory_share", judgement.coverage.memory_share},
                          {"sm_share", judgement.coverage.sm_share},
                          {"pair_share", judgement.coverage.pair_share}};
  document["ranking"] = ranking_json(judgement.ranking);
  document["findings"] = findings_json(judgement.findings);
  document["profile"] = Json::parse(profile_to_json(input.profile));
  document["observations"] = Json::parse(observations_to_json(input.seen));
  const std::string covered = signed_text(document);
  document["digest"] = sha256_hex(covered);
  document["signature"] = {{"algorithm", "Ed25519"},
                           {"public_key", key.public_key_hex()},
                           {"value", key.sign_hex(covered)}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Verification verify_report(const std::string& text, const std::string& origin,
                           const std::string& nonce, const std::string& public_key,
                           const CardDatabase& cards) {
  Verification out;
  try {
    const Json document = Json::parse(text);
    if (!document.is_object() || document.value("format", "") != kFormat)
      fail_with(ExitCode::usage, "{}: not a report of lockstep-probe", origin);
    if (document.value("version", 0) != 1)
      fail_with(ExitCode::usage, "{}: report of version {}; this program reads 1", origin,
                document.value("version", 0));
    Verifier verifier(document, out);
    const std::string covered = signed_text(document);
    verifier.check(verifier.field(nullptr, "digest") == sha256_hex(covered), "digest");
    verifier.check(signature_is_valid(covered, verifier.field("signature", "public_key"),
                                      verifier.field("signature", "value")),
                   "Ed25519 signature by " + plain(verifier.field("signature", "public_key")));
    const Observations seen = observations_from_json(text, origin);
    verifier.check(verifier.field("run", "nonce") == seen.nonce, "one nonce throughout");
    verifier.check(verifier.field("run", "backend") == seen.backend &&
                       verifier.field("run", "mode") == mode_name(seen.mode),
                   "one backend and one mode throughout");
    if (!nonce.empty()) verifier.check(seen.nonce == nonce, "the nonce that you gave");
    if (!public_key.empty())
      verifier.check(verifier.field("signature", "public_key") == public_key,
                     "the key that you expect");
    verify_judgement(document, seen, cards, verifier);
    verify_freshness(seen, verifier);
    out.valid = verifier.valid();
    out.simulated = seen.backend != "real";
    out.verdict =
        fmt::format("{} ({})", plain(verifier.field("verdict", "name")), mode_name(seen.mode));
  } catch (const Json::exception& error) {
    fail_with(ExitCode::usage, "{}: not a report of lockstep-probe: {}", origin,
              json_problem(error));
  }
  return out;
}

ExitCode verification_exit_code(const Verification& result) {
  if (!result.valid) return ExitCode::fail;
  return result.simulated ? ExitCode::mistrusted : ExitCode::pass;
}

std::string verification_text(const Verification& result, const std::string& origin) {
  std::string out;
  if (result.simulated) {
    out =
        "SIMULATED  the figures are those of a synthetic machine: this report proves nothing "
        "about any card\n";
  }
  const char* outcome = !result.valid      ? "NOT VALID"
                        : result.simulated ? "whole, but SIMULATED"
                                           : "valid";
  return out + fmt::format("{}: {}; {} {}\n", origin, outcome,
                           result.valid ? "its verdict is" : "it claims", result.verdict);
}

}  // namespace lockstep::probe
