// What a comparison with the oracle found, before anything is printed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "validation/tensor_compare.h"
#include "validation/verdict.h"

namespace lockstep {

struct TapRow {
  std::string tap;
  bool has_positions = true;  // rows are positions (taps and decode/, not state/)
  TensorDiff diff;
  TensorLimit limit;
  Verdict verdict = Verdict::pass;
  std::string reason;
};

struct GreedyReport {
  int64_t length = 0;    // tokens that the oracle holds
  int64_t n_match = 0;   // equal tokens at equal places
  int64_t n_judged = 0;  // steps whose context was the oracle's
  int64_t first_mismatch = -1;
  double worst_margin_err = 0;
  double worst_logprob_err = 0;
  double max_margin_at_mismatch = 0;  // the oracle's margin; only steps with the oracle's context
  double margin_rms = 0;  // bf16: margin errors in their standard deviations, root mean square
  Verdict verdict = Verdict::pass;
  std::string first_bad;  // "greedy[i]", "margin[i]" or "logprob[i]"
  std::string reason;
};

struct DraftReport {
  int64_t n_rounds = 0;  // verification rounds for which the oracle holds drafts
  int64_t n_judged = 0;  // drafts compared
  int64_t n_match = 0;
  int64_t n_accepted = 0;  // drafts of those rounds that were taken
  Verdict verdict = Verdict::pass;
  std::string first_bad;  // "drafts[step]"
  std::string reason;
};

struct PromptReport {
  std::string name;
  bool skipped = false;
  Verdict verdict = Verdict::pass;
  std::vector<std::string> reasons;  // why the verdict is not PASS, or why the prompt was skipped
  std::vector<TapRow> taps;          // in TapOrder
  GreedyReport greedy;
  DraftReport drafts;
  int64_t n_positions = 0;  // prompt and decode positions with recorded taps
  double worst_rel_l2 = 0;
  std::string worst_rel_tap;
  double worst_cos = 1;
  std::string worst_cos_tap;
  std::string first_bad;  // first bad tap in TapOrder, else the first bad generated step
};

struct CompareReport {
  Verdict verdict = Verdict::pass;
  std::vector<std::string> reasons;  // about the run as a whole
  std::vector<PromptReport> prompts;
};

}  // namespace lockstep
