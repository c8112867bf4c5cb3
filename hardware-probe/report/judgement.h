// From findings to a verdict, and everything else that a report says.
#pragma once

#include <string>
#include <vector>

#include "hardware-probe/checks/context.h"

namespace lockstep::probe {

enum class Verdict { accept, accept_with_notes, inconclusive, reject };
const char* verdict_name(Verdict verdict);  // "ACCEPT WITH NOTES"
Text verdict_text(Verdict verdict, Mode mode);
int verdict_exit_code(Verdict verdict);

// reject > inconclusive > notes > accept: a failure stands even when something else could not run,
// and a skip is never a pass.
Verdict verdict_of(const std::vector<Finding>& findings);

struct Coverage {
  int checks_run = 0, checks_total = 0;                   // check x target
  double memory_share = 0, sm_share = 0, pair_share = 1;  // least over the cards
};

struct Judgement {
  Verdict verdict = Verdict::inconclusive;
  std::vector<Finding> findings;
  std::vector<std::string> rows;  // per GPU: the database's name or ""
  Coverage coverage;
  std::vector<Text> ranking;  // what decides the speed of language models, most important first
};

Judgement judge(const Observations& seen, const CardDatabase& cards, const std::string& claim);

// Findings of check "compare": this run against an older one of the same cards (counters must not
// shrink, bandwidth within 3 %, plateau clock within 5 %), or of other cards (what differs,
// ranked).
std::vector<Finding> compare_runs(const Observations& seen, const Observations& older,
                                  const CardDatabase& cards);

}  // namespace lockstep::probe
