// The verdict on two engines from what they said at the same places.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "validation/diverge/side.h"

namespace lockstep {

// SAME: no fork, and no drift beyond the declared arithmetic. TIE: forks, each where the margin was
// smaller than honest drift. DRIFT: more than that, evenly, as a coarser arithmetic makes it.
// DEFECT: neither. UNDECIDED: the texts part, and a side gives no numbers that could tell why.
// MISTRUSTED: too little was compared.
enum class ForkVerdict { same, tie, undecided, mistrusted, drift, defect };
std::string_view fork_verdict_name(ForkVerdict verdict);

// One step at which both sides had the same context.
struct ForkStep {
  size_t step = 0;
  Token a;  // first side's choice
  Token b;  // second side's
  bool fork = false;
  double margin_a = 0;   // first side's margin of a over b (of a over its runner-up without a fork)
  double margin_b = 0;   // the second side's of the same pair: negative at a fork
  double scale = 1;      // nats by which the pair moves when the final norm errs by its own length
  bool bounded = false;  // a token was not in a list: the drift is at least what it says

  double drift() const;  // |margin_a - margin_b|
};

struct LocalError {
  std::string tap;
  double rel_l2 = 0;  // of the second side on the first side's input
};

struct ForkEvidence {
  std::string name;
  size_t prefix = 0;  // equal tokens from the start
  size_t length = 0;  // of the first side
  // A side gives no log-probabilities, or they share no names of tokens: prefix and length are
  // bytes of text, and there are no steps.
  bool text_only = false;
  std::vector<ForkStep> steps;
  std::vector<LocalError> local;  // in TapOrder; empty where a side gives no access
};

struct ForkJudgement {
  ForkVerdict verdict = ForkVerdict::same;
  std::string reason;
  std::string explained_by;  // the finest class of kDriftClasses that explains it; empty for none
  std::string culprit;       // tap, or "" where nothing is known
  double worst_sigmas = 0;   // of one step, in standard deviations of the declared class
  double rms_sigmas = 0;
};

struct JudgeOptions {
  size_t declared = 2;  // index into kDriftClasses: what both sides claim to be
  size_t coarsest = 3;  // what may still be called DRIFT
  int64_t min_steps = 1;
};

// Operations are judged by local_limit of the declared class (drift_class.h).
ForkJudgement judge_forks(const ForkEvidence& evidence, const JudgeOptions& options);

// The worst of several prompts: its verdict, reason and culprit; figures are the largest.
ForkJudgement merge_judgements(const std::vector<ForkJudgement>& judgements);

}  // namespace lockstep
