#include "engine/rank/cuda/card_tokens.h"

#include <algorithm>
#include <cstring>

#include "engine/base/error.h"
#include "engine/ops/argmax/cuda/argmax_cuda.h"

namespace lockstep {
namespace {

template <typename T>
T* at(std::byte* block, int64_t offset) {
  return reinterpret_cast<T*>(block + offset);
}

}  // namespace

CardTokens::CardTokens(CardModel& card, const EngineOptions& options)
    : card_(card), shape_(round_shape(card.model.config, card.model.comm.n_ranks(), options)) {
  const TokenPlaces places = token_places(shape_);
  n_sent_bytes_ = places.adjustments;
  n_fetched_bytes_ = places.fetched_bytes;
  ArenaPlan plan;
  const int sent_block = plan.add("what sampling reads", places.sent_bytes);
  const int fetched_block = plan.add("tokens and drafts", places.fetched_bytes);
  const int between_block = plan.add("places of drafts", places.between_bytes);
  const int argmax_block = plan.add("argmax", places.argmax_bytes);
  const int sample_block = plan.add("sampling", places.sample_bytes);
  n_bytes_ = plan.total_bytes();
  arena_ = std::make_unique<Arena>(card.device, std::move(plan));
  sent_ = std::make_unique<PinnedMemory>(places.sent_bytes);
  fetched_ = std::make_unique<PinnedMemory>(places.fetched_bytes);
  std::byte* sent = arena_->at(sent_block);
  std::byte* fetched = arena_->at(fetched_block);
  std::byte* middle = arena_->at(between_block);
  buffers_.columns = at<SampleColumn>(sent, places.columns);
  buffers_.forced = at<int32_t>(sent, places.forced);
  buffers_.last_positions = at<int32_t>(sent, places.last_positions);
  buffers_.adjustments = at<LogitAdjustment>(sent, places.adjustments);
  buffers_.results = at<SampleResult>(fetched, places.results);
  buffers_.n_taken = at<int32_t>(fetched, places.n_taken);
  buffers_.drafts = at<int32_t>(fetched, places.drafts);
  buffers_.ids = at<int32_t>(middle, places.ids);
  buffers_.places = {at<int32_t>(middle, places.draft_ids),
                     at<RopePosition>(middle, places.draft_positions),
                     at<int32_t>(middle, places.draft_first_positions)};
  buffers_.best = at<int32_t>(middle, places.best);
  buffers_.offers = at<DraftOffer>(middle, places.offers);
  buffers_.gathered = at<DraftOffer>(middle, places.gathered);
  buffers_.last_rows = at<uint16_t>(middle, places.last_rows);
  buffers_.argmax = arena_->at(argmax_block);
  workspace_ = arena_->at(sample_block);
}

void CardTokens::send(const std::vector<ColumnAsk>& asks, const Batch& batch) {
  LOCKSTEP_CHECK(std::ssize(asks) <= shape_.n_columns && std::ssize(batch.spans) <= shape_.n_spans);
  batch_ = SampleBatch();
  n_top_.clear();
  std::byte* host = sent_->data();
  const std::byte* device = reinterpret_cast<const std::byte*>(buffers_.columns);
  const auto on_host = [&](const auto* on_card) {
    using Value = std::remove_const_t<std::remove_pointer_t<decltype(on_card)>>;
    return reinterpret_cast<Value*>(host + (reinterpret_cast<const std::byte*>(on_card) - device));
  };
  for (size_t i = 0; i < asks.size(); ++i) {
    const ColumnAsk& ask = asks[i];
    if (ask.after.empty() || !ask.params->has_penalties()) {
      batch_.add(*ask.params, *ask.history, shape_.n_live, ask.position);
    } else {
      TokenHistory history = *ask.history;
      for (const int32_t token : ask.after) ++history.output_counts[token];
      batch_.add(*ask.params, history, shape_.n_live, ask.position);
    }
    on_host(buffers_.forced)[i] = ask.forced;
    n_top_.push_back(ask.n_top <= kMostTop ? ask.n_top : 0);
  }
  const int64_t context = card_.decode_attention.shape.max_positions;
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const auto n_pages = static_cast<int64_t>(batch.spans[s].sequence->page_table.size());
    on_host(buffers_.last_positions)[s] =
        static_cast<int32_t>(std::min(n_pages * kPageTokens, context) - 1);
  }
  std::copy(batch_.columns().begin(), batch_.columns().end(), on_host(buffers_.columns));
  std::copy(batch_.adjustments().begin(), batch_.adjustments().end(),
            on_host(buffers_.adjustments));
  const auto n_adjustments = static_cast<int64_t>(batch_.adjustments().size());
  card_.stream->copy_in(
      buffers_.columns, host,
      n_sent_bytes_ + n_adjustments * static_cast<int64_t>(sizeof(LogitAdjustment)));
}

void CardTokens::choose() {
  SampleCudaArgs args{.batch = batch_};
  args.logits = card_.buffers.logits;
  args.stride = card_.logits_stride;
  args.n_vocab = card_.model.config.vocab_size;
  args.n_live = shape_.n_live;
  args.columns = buffers_.columns;
  args.adjustments = buffers_.adjustments;
  args.n_top = n_top_.empty() ? 0 : *std::max_element(n_top_.begin(), n_top_.end());
  args.workspace = workspace_;
  args.out = buffers_.results;
  sample_cuda(args, *card_.stream);
  card_.clock.mark("choice of tokens");
}

void CardTokens::fetch() {
  card_.stream->copy_out(fetched_->data(), buffers_.results, n_fetched_bytes_);
}

template <typename T>
const T* CardTokens::fetched(const T* on_card) const {
  const int64_t offset = reinterpret_cast<const std::byte*>(on_card) -
                         reinterpret_cast<const std::byte*>(buffers_.results);
  return reinterpret_cast<const T*>(fetched_->data() + offset);
}

ColumnChoice CardTokens::choice(size_t column) const {
  const SampleResult& result = fetched(buffers_.results)[column];
  ColumnChoice choice;
  choice.token = result.token;
  const int64_t n = std::min<int64_t>(n_top_.at(column), card_.model.config.vocab_size);
  choice.logits.ids.assign(result.top_ids, result.top_ids + n);
  choice.logits.values.assign(result.top_values, result.top_values + n);
  choice.logits.log_sum_exp = result.log_sum_exp;
  choice.logits.chosen_value = result.chosen_value;
  return choice;
}

int32_t CardTokens::n_taken(size_t span) const {
  return fetched(buffers_.n_taken)[span];
}

int32_t CardTokens::draft(size_t step, size_t span) const {
  return fetched(buffers_.drafts)[step * static_cast<size_t>(shape_.n_spans) + span];
}

}  // namespace lockstep
