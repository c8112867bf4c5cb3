// What a benchmark or a gate needs to know about the machine that it ran on.
#pragma once

#include <string>
#include <vector>

#include "hardware-probe/report/judgement.h"
#include "hardware-probe/report/summary.h"

namespace lockstep::probe {

struct ProfileLink {
  int from = 0, to = 0;
  double gbps = 0, flag_us = 0;
  bool trusted = false;
};

struct Profile {
  std::string backend, mode, nonce, driver, verdict;
  std::vector<CardSummary> cards;
  std::vector<ProfileLink> links;
  // "no-gpu", "rejected", "throttled", "contradictory", "shared", "unproven": any mark means that
  // numbers of this machine's GPUs must be shown as doubtful.
  std::vector<std::string> marks;
  std::string digest;  // of everything above

  bool trusted() const { return marks.empty(); }
};

Profile make_profile(const Observations& seen, const Judgement& judgement,
                     const CardDatabase& cards);
std::string profile_digest(const Profile& profile);  // of everything but its own digest
std::string profile_to_json(const Profile& profile);
// Throws Error (usage) that names `origin` when the text is no profile or its digest is wrong.
Profile profile_from_json(const std::string& text, const std::string& origin);

}  // namespace lockstep::probe
