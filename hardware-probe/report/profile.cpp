#include "hardware-probe/report/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/json_problem.h"
#include "hardware-probe/report/signature.h"

namespace lockstep::probe {

using Json = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CardSummary, uuid, row, memory_mhz, read_gbps, copy_gbps,
                                   theory_gbps, sm, sm_mhz, fp32_tflops, hmma_tflops, solo_mhz,
                                   together_mhz, together_c, solo_c)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProfileLink, from, to, gbps, flag_us, trusted)

namespace {

constexpr const char* kFormat = "lockstep-probe-profile";

Json content_of(const Profile& profile) {
  return {{"format", kFormat},          {"version", 1},           {"backend", profile.backend},
          {"mode", profile.mode},       {"nonce", profile.nonce}, {"driver", profile.driver},
          {"verdict", profile.verdict}, {"cards", profile.cards}, {"links", profile.links},
          {"marks", profile.marks}};
}

bool is_bad(const Finding& finding) {
  return finding.status == Status::warn || finding.status == Status::fail;
}

std::vector<std::string> marks_of(const Judgement& judgement) {
  bool throttled = false, contradictory = false, shared = false, unproven = false;
  for (const Finding& finding : judgement.findings) {
    throttled =
        throttled || (is_bad(finding) && (finding.check == "C17" || finding.check == "C18"));
    contradictory = contradictory ||
                    (is_bad(finding) &&
                     (finding.check == "C02" || finding.check == "C10" || finding.check == "C16"));
    shared = shared || (finding.check == "C04" && finding.status == Status::inconclusive);
    unproven = unproven || finding.status == Status::skip ||
               (finding.check != "C04" && finding.status == Status::inconclusive);
  }
  std::vector<std::string> marks;
  if (judgement.rows.empty()) return {"no-gpu"};
  if (judgement.verdict == Verdict::reject) marks.push_back("rejected");
  if (contradictory) marks.push_back("contradictory");
  if (shared) marks.push_back("shared");
  if (throttled) marks.push_back("throttled");
  if (unproven) marks.push_back("unproven");
  return marks;
}

}  // namespace

Profile make_profile(const Observations& seen, const Judgement& judgement,
                     const CardDatabase& cards) {
  const MachineSummary machine = summarize(seen, cards, judgement.findings);
  Profile out;
  out.backend = seen.backend;
  out.mode = mode_name(seen.mode);
  out.nonce = seen.nonce;
  out.driver = seen.stack.driver_version;
  out.verdict = verdict_name(judgement.verdict);
  out.cards = machine.cards;
  out.marks = marks_of(judgement);
  for (const PairObservations& pair : seen.pairs) {
    const auto flag = pair.latency_us.find("flag");
    const double gbps = pair.copy_gbps.empty() ? 0 : median(pair.copy_gbps);
    out.links.push_back({pair.from, pair.to, gbps, flag == pair.latency_us.end() ? 0 : flag->second,
                         pair_is_trusted(judgement.findings, pair.from, pair.to)});
  }
  out.digest = profile_digest(out);
  return out;
}

std::string profile_digest(const Profile& profile) {
  return sha256_hex(content_of(profile).dump());
}

std::string profile_to_json(const Profile& profile) {
  Json document = content_of(profile);
  document["digest"] = profile.digest;
  return document.dump(1) + "\n";
}

Profile profile_from_json(const std::string& text, const std::string& origin) {
  try {
    const Json document = Json::parse(text);
    if (!document.is_object() || document.value("format", "") != kFormat)
      fail_with(ExitCode::usage, "{}: not a probe profile", origin);
    if (document.value("version", 0) != 1)
      fail_with(ExitCode::usage, "{}: profile of version {}; this program reads 1", origin,
                document.value("version", 0));
    Profile out;
    out.backend = document.at("backend");
    out.mode = document.at("mode");
    out.nonce = document.at("nonce");
    out.driver = document.at("driver");
    out.verdict = document.at("verdict");
    out.cards = document.at("cards").get<std::vector<CardSummary>>();
    out.links = document.at("links").get<std::vector<ProfileLink>>();
    out.marks = document.at("marks").get<std::vector<std::string>>();
    out.digest = document.at("digest");
    if (profile_digest(out) != out.digest)
      fail_with(ExitCode::usage, "{}: the digest does not fit the content", origin);
    return out;
  } catch (const Json::exception& error) {
    fail_with(ExitCode::usage, "{}: not a probe profile: {}", origin, json_problem(error));
  }
}

}  // namespace lockstep::probe
