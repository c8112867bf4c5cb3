// The rows of the head that score drafts, on a card.
#pragma once

#include <memory>
#include <vector>

#include "engine/rank/cuda/card_branches.h"
#include "engine/rank/cuda/card_tokens.h"

namespace lockstep {

class DraftRows {
 public:
  // `head` may be the model's whole head, which is not stored twice. `row_ids`: the token of each
  // row, -1 of rows that are no candidates.
  DraftRows(CardModel& card, const MatrixPieces& head, const std::vector<int32_t>& row_ids);

  // buffers.normed [n_rows, hidden] to float32 logits [n_rows, rows of the head] on the host; they
  // stay until the next call.
  const float* logits(int64_t n_rows);

  // The draft after each row of buffers.normed [n_spans, hidden]: to drafts[step] of the tokens'
  // buffers, whose places move on to it. All candidates must come before all other rows.
  void choose(int n_spans, int step, const CardTokens& tokens);

  int64_t n_bytes() const { return n_bytes_; }  // on the card

 private:
  void multiply_rows(int64_t n_rows);

  CardModel& card_;
  CardPieces own_;
  const CardPieces* pieces_;
  std::unique_ptr<Arena> arena_;
  int64_t n_bytes_ = 0;
  int64_t width_ = 0;
  int64_t stride_ = 0;
  int64_t n_candidates_ = 0;
  float* logits_ = nullptr;     // [n_slots, stride_]
  int32_t* row_ids_ = nullptr;  // [width_]
  std::vector<float> host_;
};

}  // namespace lockstep
