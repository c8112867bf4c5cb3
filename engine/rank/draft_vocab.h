// The tokens that drafts are chosen from: a list of ids, and the rows of the head that score them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/rank/backend.h"

namespace lockstep {

// `flag` is a number N (the first N rows of the vocabulary) or a file of token ids
// (docs/formats/draft-vocab.md). Ascending ids, all below n_live, without repetition; empty for ""
// and "0": no limit. Throws Error (usage) that names file and line.
std::vector<int32_t> read_draft_vocab(const std::string& flag, int64_t n_live);

// Scores and chooses drafts. With a list only its rows are multiplied: a copy of them lies side by
// side. Over two ranks each offers its best, not its logits.
class DraftHead {
 public:
  // `ids` as read_draft_vocab returns them; empty: all rows below n_live. `model` and `backend`
  // must outlive it.
  DraftHead(const Model& model, Backend& backend, std::vector<int32_t> ids, int64_t n_live);

  // The best token of each of `n` rows [n, hidden]: lowest id on ties, the same on every rank. A
  // row with NaN logits gets some token: verification refuses it and names what is wrong.
  std::vector<int32_t> best_tokens(const float* rows, int64_t n);

  // Rows of the head that this rank multiplies.
  int64_t n_scored_rows() const;

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  void gather_rows(const std::vector<int32_t>& local_ids);
  Candidate best_of(const float* logits) const;

  const Model& model_;
  Backend& backend_;
  MatrixPieces matrix_;           // this rank's rows, or the listed ones of them
  std::vector<int32_t> row_ids_;  // id of each row of matrix_; -1: is no candidate
  std::vector<std::byte> codes_;  // what matrix_ points to, with a list
  std::vector<std::byte> scales_;
  std::vector<uint8_t> zero_points_;
  std::vector<float> row_scales_;
};

}  // namespace lockstep
