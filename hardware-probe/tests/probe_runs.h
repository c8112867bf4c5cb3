// Runs of the synthetic machine for the tests.
#pragma once

#include <string>

#include "hardware-probe/cards/card_database.h"
#include "hardware-probe/collect/steps.h"
#include "hardware-probe/report/report.h"
#include "hardware-probe/sim/faults.h"
#include "hardware-probe/sim/sim_backend.h"

namespace lockstep::probe {

inline Observations observe_sim(const std::string& spec, Mode mode) {
  const auto backend = sim::open_sim(sim::machine_from_spec(spec, card_database()));
  const auto executor = in_process_executor(*backend);
  CollectOptions options;
  options.mode = mode;
  options.nonce = "lockstep-sim";
  options.backend_name = "sim";
  return collect(*executor, options);
}

inline Judgement judge_sim(const std::string& spec, Mode mode, const std::string& claim = "") {
  return judge(observe_sim(spec, mode), card_database(), claim);
}

inline MachineSummary summary_of(const Observations& seen) {
  return summarize(seen, card_database(), judge(seen, card_database(), "").findings);
}

// True when `check` says something other than pass or info.
inline bool complains(const Judgement& judgement, const std::string& check) {
  for (const Finding& finding : judgement.findings) {
    if (finding.check == check && finding.status != Status::pass && finding.status != Status::info)
      return true;
  }
  return false;
}

inline std::string complaints(const Judgement& judgement) {
  std::string out;
  for (const Finding& finding : judgement.findings) {
    if (finding.status == Status::pass || finding.status == Status::info) continue;
    out += finding.check + " " + finding.target + " " + status_name(finding.status) + ": " +
           finding.reason.en + "\n";
  }
  return out;
}

}  // namespace lockstep::probe
