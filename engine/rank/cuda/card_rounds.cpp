#include "engine/rank/cuda/card_rounds.h"

#include <algorithm>

#include "engine/base/fault.h"
#include "engine/rank/cuda/card_passes.h"

namespace lockstep {
namespace {

constexpr size_t kMostShapes = 64;  // whose graphs are kept
constexpr int kSegmentBucket = 32;  // launches of attention grow by this many segments

cudaStream_t native(const CardModel& card) {
  return static_cast<cudaStream_t>(card.stream->native());
}

// Segments that attention may need in this round and its drafts, as whole buckets.
int segment_bucket(const CardModel& card, const Batch& batch, int n_drafts) {
  int64_t last = 0;
  for (const Span& span : batch.spans) {
    last = std::max(last, span.first_position + span.n_tokens - 1 + n_drafts);
  }
  const AttentionCudaPlan& plan = card.decode_attention;
  const int needed = plan.segments.index_of(static_cast<int>(last)) + 1;
  return std::min(plan.n_segments, (needed + kSegmentBucket - 1) / kSegmentBucket * kSegmentBucket);
}

// A column of its own for each span; where it stands is on the card alone.
Batch one_column_a_span(const Batch& batch) {
  Batch one;
  one.round = batch.round;
  for (const Span& span : batch.spans) {
    Span column = span;
    column.n_tokens = 1;
    column.column = one.n_columns();
    one.ids.push_back(0);
    one.positions.push_back({});
    one.spans.push_back(column);
  }
  return one;
}

template <typename Args>
void set_spans(const Batch& batch, Args& args) {
  args.n_spans = static_cast<int>(batch.spans.size());
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    args.spans[s] = {static_cast<int32_t>(batch.spans[s].column),
                     static_cast<int32_t>(batch.spans[s].n_tokens)};
  }
}

}  // namespace

CardRounds::CardRounds(CardModel& card, CardTokens& tokens, const EngineOptions& options)
    : card_(card),
      tokens_(tokens),
      graphs_(options.cuda_graphs && !fault_selected() &&
              (card.transport == nullptr || card.transport->capturable())),
      time_ops_(options.time_ops),
      rows_(card.limits.n_decode * card.model.config.hidden_size * 2) {}

CardRounds::Shape& CardRounds::shape_of(const Batch& batch, int n_segments, int n_drafts) {
  std::vector<int64_t> key = {n_segments, n_drafts};
  for (const Span& span : batch.spans) {
    key.push_back(span.sequence->slot);
    key.push_back(span.n_tokens);
  }
  std::unique_ptr<Shape>& shape = shapes_[key];
  if (shape == nullptr) shape = std::make_unique<Shape>();
  shape->last_run = ++n_runs_;
  if (shapes_.size() > kMostShapes) {
    shapes_.erase(std::min_element(
        shapes_.begin(), shapes_.end(),
        [](const auto& a, const auto& b) { return a.second->last_run < b.second->last_run; }));
  }
  return *shape;  // the newest: still there
}

template <typename Enqueue>
void CardRounds::run_part(Part& part, bool recorded, const Enqueue& enqueue) {
  const auto timed = [&] {
    if (time_ops_) card_.clock.begin(part.timeline);
    enqueue();
    card_.clock.end();
  };
  if (!recorded) {
    timed();
    return;
  }
  if (part.graph == nullptr) part.graph = std::make_unique<CudaGraph>(native(card_), timed);
  part.graph->launch(native(card_));
}

void CardRounds::run(const Batch& batch, const PassInputs& inputs, int n_drafts, DraftRows* head) {
  CardBatch pass{batch, inputs};
  pass.n_segments = segment_bucket(card_, batch, n_drafts);
  Shape& shape = shape_of(batch, pass.n_segments, n_drafts);
  // The first round of a shape runs as it is: recording must not be what loads kernels.
  const bool recorded = graphs_ && shape.n_runs++ > 0;
  n_recorded_ += recorded ? 1 : 0;
  run_part(shape.forward, recorded, [&] { enqueue_forward(pass); });
  run_part(shape.choice, false, [&] { tokens_.choose(); });
  if (n_drafts > 0) {
    run_part(shape.drafts, recorded, [&] { enqueue_drafts(pass, n_drafts, *head); });
  }
  tokens_.fetch();
  last_ = &shape;
}

void CardRounds::enqueue_forward(const CardBatch& pass) {
  const int64_t n = pass.batch.n_columns();
  card_forward(card_, pass);
  card_logits(card_, 0, n);
  card_.stream->copy_out(rows_.data(), card_.buffers.normed,
                         n * card_.model.config.hidden_size * 2);
  card_.clock.mark("rows to the host");
}

void CardRounds::enqueue_drafts(const CardBatch& pass, int n_drafts, DraftRows& head) {
  const TokenBuffers& buffers = tokens_.buffers();
  VerifyCudaArgs verify;
  set_spans(pass.batch, verify);
  verify.fed = pass.inputs.ids;
  verify.positions = pass.inputs.positions;
  verify.first_positions = pass.inputs.first_positions;
  verify.results = buffers.results;
  verify.forced = buffers.forced;
  verify.ids = buffers.ids;
  verify.n_taken = buffers.n_taken;
  verify.last = buffers.places;
  verify_cuda(verify, *card_.stream);
  card_.clock.mark("verification");

  // K and V of columns that do not stay lie beyond those that do: drafts write there before they
  // read.
  PassInputs inputs = pass.inputs;
  inputs.ids = buffers.ids;
  CardBatch taken{pass.batch, inputs};
  taken.n_segments = pass.n_segments;
  card_mtp_store(card_, taken, card_.buffers.normed);
  TakeRowsCudaArgs take;
  set_spans(pass.batch, take);
  take.n_taken = buffers.n_taken;
  take.rows = card_.buffers.mtp_x;
  take.out = buffers.last_rows;
  take.width = card_.model.config.hidden_size;
  take_rows_cuda(take, *card_.stream);
  card_.clock.mark("verification");

  const Batch last = one_column_a_span(pass.batch);
  CardBatch draft{
      last,
      {buffers.places.ids, buffers.places.positions, buffers.places.first_positions, nullptr}};
  draft.n_segments = pass.n_segments;
  for (int step = 0; step < n_drafts; ++step) {
    if (step == 0) {
      card_mtp_attend(card_, draft, buffers.last_rows);
    } else {
      card_mtp_step(card_, draft, card_.buffers.normed);
    }
    head.choose(static_cast<int>(last.spans.size()), step, tokens_);
  }
}

void CardRounds::collect_times() {
  if (!time_ops_ || last_ == nullptr) return;
  for (const Part* part : {&last_->forward, &last_->choice, &last_->drafts}) {
    card_.clock.collect(part->timeline);
  }
}

}  // namespace lockstep
