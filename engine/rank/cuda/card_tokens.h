// Chooses tokens on the card from buffers.logits, and holds what a round's tokens and drafts need
// there. The host gets them in one copy.
#pragma once

#include <memory>
#include <vector>

#include "engine/device/arena.h"
#include "engine/device/cuda/pinned_memory.h"
#include "engine/ops/sample/cuda/sample_cuda.h"
#include "engine/ops/verify/cuda/verify_cuda.h"
#include "engine/rank/backend.h"
#include "engine/rank/cuda/card_model.h"
#include "engine/rank/limits.h"
#include "engine/rank/round_memory.h"

namespace lockstep {

static_assert(kVerifySpans >= kMaxSlots);

// On the card; n is the columns of a round, s its spans at most.
struct TokenBuffers {
  // From the host.
  SampleColumn* columns = nullptr;    // [n]
  int32_t* forced = nullptr;          // [n]
  int32_t* last_positions = nullptr;  // [s] of the pages that a sequence has
  LogitAdjustment* adjustments = nullptr;
  // To the host.
  SampleResult* results = nullptr;  // [n]
  int32_t* n_taken = nullptr;       // [s]
  int32_t* drafts = nullptr;        // [kMaxDrafts, s]
  // Between the passes of a round.
  int32_t* ids = nullptr;          // [n] of the columns that stay
  DraftPlaces places;              // [s]
  int32_t* best = nullptr;         // [s] rows of the draft head
  DraftOffer* offers = nullptr;    // [s] of this rank
  DraftOffer* gathered = nullptr;  // [n_ranks, s]
  uint16_t* last_rows = nullptr;   // [s, hidden]
  std::byte* argmax = nullptr;     // workspace
};

class CardTokens {
 public:
  CardTokens(CardModel& card, const EngineOptions& options);

  const TokenBuffers& buffers() const { return buffers_; }
  int n_spans_at_most() const { return shape_.n_spans; }
  int64_t n_bytes() const { return n_bytes_; }  // on the card

  // What is asked of the columns of a pass, in order, and of the spans of `batch`.
  void send(const std::vector<ColumnAsk>& asks, const Batch& batch);
  // Rows [0, asks) of buffers.logits to results.
  void choose();
  // Results, and of a round with drafts those; they are here when the stream is synchronised.
  void fetch();

  ColumnChoice choice(size_t column) const;
  int32_t n_taken(size_t span) const;
  int32_t draft(size_t step, size_t span) const;

 private:
  template <typename T>
  const T* fetched(const T* on_card) const;

  CardModel& card_;
  const RoundShape shape_;
  int64_t n_bytes_ = 0;
  int64_t n_sent_bytes_ = 0;  // without adjustments
  int64_t n_fetched_bytes_ = 0;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<PinnedMemory> sent_;
  std::unique_ptr<PinnedMemory> fetched_;
  TokenBuffers buffers_;
  std::byte* workspace_ = nullptr;
  SampleBatch batch_;
  std::vector<int> n_top_;  // of each column that was asked for
};

}  // namespace lockstep
