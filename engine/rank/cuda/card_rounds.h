// Decode rounds as a whole on a card: the pass through the layers, a token for every column, and
// the drafts of the next round. Nothing waits for the host; the rounds of one shape are recorded as
// CUDA graphs.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine/device/cuda/cuda_graph.h"
#include "engine/device/cuda/op_clock.h"
#include "engine/device/cuda/pinned_memory.h"
#include "engine/rank/cuda/card_model.h"
#include "engine/rank/cuda/card_tokens.h"
#include "engine/rank/cuda/draft_rows.h"
#include "engine/rank/cuda/pass_inputs.h"

namespace lockstep {

class CardRounds {
 public:
  CardRounds(CardModel& card, CardTokens& tokens, const EngineOptions& options);

  // `tokens` holds what is asked of the batch's columns. With n_drafts > 0 `head` chains them.
  // Enqueues all of it; after the stream is synchronised tokens and rows() are here.
  void run(const Batch& batch, const PassInputs& inputs, int n_drafts, DraftRows* head);

  // bfloat16 final-norm rows [n_columns, hidden] of the last round.
  const uint16_t* rows() const { return reinterpret_cast<const uint16_t*>(rows_.data()); }

  int64_t n_recorded() const { return n_recorded_; }  // rounds that ran as graphs

  // Of the last round, which has ended.
  void collect_times();

 private:
  struct Part {
    std::unique_ptr<CudaGraph> graph;
    OpTimeline timeline;
  };
  // What rounds of one shape share.
  struct Shape {
    Part forward;
    Part choice;
    Part drafts;
    int64_t n_runs = 0;
    int64_t last_run = 0;
  };

  Shape& shape_of(const Batch& batch, int n_segments, int n_drafts);
  template <typename Enqueue>
  void run_part(Part& part, bool recorded, const Enqueue& enqueue);
  void enqueue_forward(const CardBatch& pass);
  void enqueue_drafts(const CardBatch& pass, int n_drafts, DraftRows& head);

  CardModel& card_;
  CardTokens& tokens_;
  const bool graphs_;
  const bool time_ops_;
  PinnedMemory rows_;
  std::map<std::vector<int64_t>, std::unique_ptr<Shape>> shapes_;
  Shape* last_ = nullptr;
  int64_t n_runs_ = 0;
  int64_t n_recorded_ = 0;
};

}  // namespace lockstep
