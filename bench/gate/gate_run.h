// Races two builds: quads of fresh processes until the rule has an answer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/gate/pace_promise.h"

namespace lockstep {

// Seconds of each figure in one fresh process of the baseline or of the candidate.
using PaceProcess = std::function<std::vector<double>(bool candidate)>;

struct PaceFigure {
  std::string name;
  PaceVerdict verdict = PaceVerdict::ambiguous;
  std::vector<PaceQuad> quads;
  double change() const;  // median of the quads' ratios, less 1
  std::vector<double> differences() const;
};

struct PaceRace {
  std::vector<PaceFigure> figures;
  // SLOWER when a figure is; else AMBIGUOUS when one is; else FASTER when one is; else SAME.
  PaceVerdict verdict() const;
};

// `names` of the figures; each is judged with its part of rule.alpha. One process of each build
// goes ahead and does not count.
PaceRace run_race(const std::vector<std::string>& names, const PaceProcess& process, uint64_t seed,
                  const PaceRule& rule);

}  // namespace lockstep
