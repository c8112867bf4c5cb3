#include "engine/rank/drafter.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/ops/attention/attention.h"

namespace lockstep {

void Drafter::advance(const std::vector<Advance>& advances, int round) {
  const int64_t hidden = model_.config.hidden_size;
  Batch batch;
  batch.round = round;
  std::vector<float> rows;
  bool any_proposal = false;
  for (const Advance& advance : advances) {
    const auto n = static_cast<int64_t>(advance.tokens.size());
    LOCKSTEP_CHECK(n > 0 && static_cast<int64_t>(advance.hidden.size()) == n * hidden);
    batch.add({&advance.slot->sequence, Phase::decode, advance.first_slot, n, 0, 0, nullptr,
               first_visible(advance.first_slot + n - 1)},
              advance.tokens.data(), advance.embedding_rows);
    rows.insert(rows.end(), advance.hidden.begin(), advance.hidden.end());
    batch.mtp_of_prompt = advance.of_prompt;
    advance.slot->n_mtp_slots = advance.first_slot + n;
    advance.slot->drafts.clear();
    any_proposal = any_proposal || advance.propose;
  }
  if (batch.spans.empty()) return;
  std::vector<float> outputs;
  backend_.mtp_forward(batch, rows.data(), any_proposal ? &outputs : nullptr);
  if (!any_proposal) return;

  std::vector<Slot*> slots;
  std::vector<float> proposing;
  for (size_t i = 0; i < advances.size(); ++i) {
    if (!advances[i].propose) continue;
    slots.push_back(advances[i].slot);
    const auto row = outputs.begin() + static_cast<std::ptrdiff_t>(i) * hidden;
    proposing.insert(proposing.end(), row, row + hidden);
  }
  propose(std::move(slots), std::move(proposing), round);
}

void Drafter::take(Slot& slot, int64_t n_mtp_slots, std::vector<int32_t> drafts) const {
  slot.n_mtp_slots = n_mtp_slots;
  slot.drafts = std::move(drafts);
  slot.drafts.resize(std::min(slot.drafts.size(), static_cast<size_t>(slot.tokens_left())));
}

// One draft a pass: the argmax of the last MTP output, which is then fed back with that output as
// its hidden row. Slots that have enough drafts leave the batch.
void Drafter::propose(std::vector<Slot*> slots, std::vector<float> outputs, int round) {
  const int64_t hidden = model_.config.hidden_size;
  const auto wanted = [&](const Slot& slot) {
    return std::min<int64_t>(options_.n_drafts, slot.tokens_left());
  };
  while (true) {
    const std::vector<int32_t> best =
        head_.best_tokens(outputs.data(), static_cast<int64_t>(slots.size()));
    Batch batch;
    batch.round = round;
    std::vector<Slot*> unfinished;
    std::vector<float> rows;
    for (size_t i = 0; i < slots.size(); ++i) {
      Slot& slot = *slots[i];
      slot.drafts.push_back(best[i]);
      const auto n_drafts = static_cast<int64_t>(slot.drafts.size());
      if (n_drafts >= wanted(slot)) continue;
      int64_t mtp_slot = slot.n_mtp_slots + n_drafts - 1;
      if (fault_fires("speculation.draft-position-constant")) mtp_slot = slot.n_mtp_slots;
      batch.add(
          {&slot.sequence, Phase::decode, mtp_slot, 1, 0, 0, nullptr, first_visible(mtp_slot)},
          &slot.drafts.back());
      unfinished.push_back(&slot);
      const auto row = outputs.begin() + static_cast<std::ptrdiff_t>(i) * hidden;
      rows.insert(rows.end(), row, row + hidden);
    }
    if (unfinished.empty()) return;
    backend_.mtp_forward(batch, rows.data(), &outputs);
    slots = std::move(unfinished);
  }
}

// Start of the attention segment that holds the oldest position of the window.
int64_t Drafter::first_visible(int64_t position) const {
  if (options_.window == 0) return 0;
  const int64_t oldest = std::max<int64_t>(0, position + 1 - options_.window);
  return oldest / kAttentionSegment * kAttentionSegment;
}

}  // namespace lockstep
