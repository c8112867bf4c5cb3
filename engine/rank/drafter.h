// Speculation with the MTP layer: keeps its K and V in step with the target and proposes drafts.
#pragma once

#include <vector>

#include "engine/rank/draft_vocab.h"
#include "engine/rank/slot.h"

namespace lockstep {

struct DraftOptions {
  int n_drafts = 0;                       // k: drafts per round, 0 to 5
  int64_t n_live = 0;                     // vocabulary rows that exist
  int64_t window = 0;                     // positions that a draft sees at least; 0: all
  std::vector<int32_t> draft_vocab = {};  // drafts come from these tokens; empty: all
};

class Drafter {
 public:
  Drafter(const Model& model, Backend& backend, const DraftOptions& options)
      : model_(model),
        backend_(backend),
        options_(options),
        head_(model, backend, options.draft_vocab, options.n_live) {}

  bool active() const { return options_.n_drafts > 0 && model_.weights.mtp != nullptr; }
  // Drafts that a round may make by itself.
  int n_in_round() const { return active() ? options_.n_drafts : 0; }

  // Tokens of one slot that the target has just taken in: tokens[i] follows position first + i,
  // whose final-norm row is hidden[i]. `propose` asks for drafts after the last token.
  struct Advance {
    Slot* slot;
    int64_t first_slot;
    std::vector<int32_t> tokens;
    std::vector<float> hidden;  // [tokens.size(), hidden]
    bool propose;
    std::vector<const float*> embedding_rows{};  // as in Batch: empty, or one a token
    bool of_prompt = false;                      // the same for all advances of a call
  };

  // Takes drafts that a backend made with a round: the MTP slots before `n_mtp_slots` are rebuilt.
  void take(Slot& slot, int64_t n_mtp_slots, std::vector<int32_t> drafts) const;

  // Rebuilds the MTP slots of all advances and fills slot.drafts of those that ask.
  void advance(const std::vector<Advance>& advances, int round);

 private:
  void propose(std::vector<Slot*> slots, std::vector<float> outputs, int round);
  int64_t first_visible(int64_t position) const;

  const Model& model_;
  Backend& backend_;
  DraftOptions options_;
  DraftHead head_;
};

}  // namespace lockstep
