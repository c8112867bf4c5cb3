// The rows of the head that score drafts, on a card.
#pragma once

#include <memory>

#include "engine/rank/cuda/card_branches.h"

namespace lockstep {

class DraftRows {
 public:
  // `head` may be the model's whole head, which is not stored twice.
  DraftRows(CardModel& card, const MatrixPieces& head);

  // buffers.normed [n_rows, hidden] to float32 logits [n_rows, rows of the head] on the host; they
  // stay until the next call.
  const float* logits(int64_t n_rows);

 private:
  CardModel& card_;
  CardPieces own_;
  const CardPieces* pieces_;
  std::unique_ptr<Arena> arena_;
  int64_t width_ = 0;
  float* logits_ = nullptr;  // [n_slots, width_]
  std::vector<float> host_;
};

}  // namespace lockstep
