#include "engine/rank/cuda/cuda_backend.h"

#include <algorithm>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/float_formats.h"
#include "engine/ops/causal_conv/cuda/causal_conv_cuda.h"
#include "engine/rank/cuda/card_passes.h"
#include "engine/rank/cuda/card_rounds.h"
#include "engine/rank/cuda/card_tokens.h"
#include "engine/rank/cuda/draft_rows.h"
#include "engine/rank/limits.h"
#include "engine/rank/row_hooks.h"

namespace lockstep {
namespace {

class CudaBackend : public Backend {
 public:
  CudaBackend(const Model& model, const EngineOptions& options)
      : model_(model),
        card_(model, options),
        senders_{InputSender(card_.limits), InputSender(card_.limits)},
        tokens_(card_, options),
        rounds_(card_, tokens_, options),
        pending_(static_cast<size_t>(options.n_slots), 0),
        page_tables_(static_cast<size_t>(options.n_slots)) {}

  void begin(Sequence& sequence, int slot) override;
  void assume(const Sequence& sequence, int64_t n) override;
  const float* forward(const Batch& batch) override;
  const float* logits(int64_t first_column, int64_t n_columns) override;
  void mtp_forward(const Batch& batch, const float* hidden, std::vector<float>* out) override;
  void choose(const Batch& batch, const std::vector<ColumnAsk>& asks,
              int64_t first_column) override;
  const float* decode(const Batch& batch, const std::vector<ColumnAsk>& asks,
                      int n_drafts) override;
  std::optional<ColumnChoice> choice(int64_t column) const override;
  std::vector<int32_t> drafts(size_t span, int64_t n_taken) const override;
  void set_draft_head(const MatrixPieces& head, const std::vector<int32_t>& row_ids,
                      bool dense) override {
    draft_rows_.emplace(card_, head, row_ids);
    chains_drafts_ = dense;
  }
  const float* draft_logits(const float* rows, int64_t n_rows) override;
  void rewind(Sequence& sequence, int64_t n_keep) override;
  std::vector<GdnState> states(const Sequence& sequence) override;
  void set_states(Sequence& sequence, const std::vector<GdnState>& states) override;
  void copy_page(uint32_t from, uint32_t to) override;
  std::vector<float> kv_rows(int kv_layer, const Sequence& sequence, bool value, int64_t first,
                             int64_t n) override;
  int64_t n_recorded_rounds() const override { return rounds_.n_recorded(); }
  std::vector<OpTime> op_times() const override;
  int64_t workspace_bytes() const override {
    return card_.n_workspace_bytes + tokens_.n_bytes() + (draft_rows_ ? draft_rows_->n_bytes() : 0);
  }

 private:
  void begin_pass(const Batch& batch);
  void settle(const Sequence& sequence);
  std::vector<GdnSpan> rounds_of(const Batch& batch);

  const Model& model_;
  CardModel card_;
  InputSender senders_[2];
  CardTokens tokens_;
  CardRounds rounds_;
  std::optional<DraftRows> draft_rows_;
  // Columns of a slot's last round that stay and that its states do not hold yet (gdn_round.h).
  std::vector<int32_t> pending_;
  std::vector<std::vector<uint32_t>> page_tables_;  // as they lie on the card
  bool chains_drafts_ = false;
  std::vector<float> rows_;    // of the last forward()
  std::vector<float> logits_;  // on the host
  // Columns of the last forward() whose logits lie on the card, and whose tokens are chosen.
  int64_t first_logits_ = 0;
  int64_t n_logits_ = 0;
  int64_t first_choice_ = 0;
  size_t n_chained_ = 0;  // drafts of a span in the last decode()
};

// The first call on the card from this thread, and page tables that the card has not seen.
void CudaBackend::begin_pass(const Batch& batch) {
  card_.device.make_current();
  for (const Span& span : batch.spans) {
    const auto slot = static_cast<size_t>(span.sequence->slot);
    const std::vector<uint32_t>& pages = span.sequence->page_table;
    if (page_tables_[slot] == pages) continue;
    page_tables_[slot] = pages;
    card_.stream->copy_in(card_.buffers.page_tables + span.sequence->slot * card_.limits.n_pages,
                          page_tables_[slot].data(), static_cast<int64_t>(pages.size()) * 4);
  }
}

// A round of one column is committed at once. One that verifies drafts waits for rewind(), or for
// the next round when all of it stays.
std::vector<GdnSpan> CudaBackend::rounds_of(const Batch& batch) {
  std::vector<GdnSpan> rounds;
  for (const Span& span : batch.spans) {
    int32_t& pending = pending_[static_cast<size_t>(span.sequence->slot)];
    const auto n_new = static_cast<int32_t>(span.n_tokens);
    if (span.phase == Phase::prefill) {
      LOCKSTEP_CHECK(pending == 0 && batch.spans.size() == 1);
      return {};
    }
    const bool verifies = n_new > 1;
    rounds.push_back({span.sequence->slot, static_cast<int32_t>(span.column), pending, n_new,
                      verifies ? pending : pending + n_new});
    pending = verifies ? n_new : 0;
  }
  return rounds;
}

// Replays what stays of the last round. The next round would do the same first.
void CudaBackend::settle(const Sequence& sequence) {
  card_.device.make_current();
  int32_t& pending = pending_[static_cast<size_t>(sequence.slot)];
  if (pending == 0) return;
  Batch batch;
  batch.spans.emplace_back();
  const GdnSpan round{sequence.slot, 0, pending, 0, pending};
  const PassInputs inputs =
      senders_[0].send(batch, std::span(&round, 1), card_.buffers.inputs[0], *card_.stream);
  replay_gdn(card_, {batch, inputs});
  card_.stream->synchronize();
  pending = 0;
}

void CudaBackend::begin(Sequence& sequence, int slot) {
  card_.device.make_current();
  sequence.slot = slot;
  pending_[static_cast<size_t>(slot)] = 0;
  const CardStates& states = card_.states;
  const int64_t delta = states.n_layers * states.delta_size;
  const int64_t window = states.n_layers * states.window_size;
  card_.stream->fill(states.delta + slot * delta, 0, delta * 4);
  card_.stream->fill(states.window + slot * window, 0, window * 2);
}

void CudaBackend::assume(const Sequence& sequence, int64_t n) {
  card_.device.make_current();
  const KvCacheShape& shape = model_.kv.shape();
  const int64_t page_bytes = kv_page_bytes(shape.type, shape.n_kv_heads, shape.head_dim);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    std::byte* pool = card_.kv_layer(layer, 0).pool;
    for (int64_t i = 0; i < KvCache::pages_for(n); ++i) {
      const int64_t page = sequence.page_table[static_cast<size_t>(i)];
      card_.stream->fill(pool + page * page_bytes, kAssumedKvByte, page_bytes);
    }
  }
}

std::vector<OpTime> CudaBackend::op_times() const {
  std::vector<OpTime> times;
  for (const auto& [op, total] : card_.clock.totals())
    times.push_back({op, total.seconds, total.n});
  return times;
}

const float* CudaBackend::forward(const Batch& batch) {
  begin_pass(batch);
  const std::vector<GdnSpan> rounds = rounds_of(batch);
  const PassInputs inputs = senders_[0].send(batch, rounds, card_.buffers.inputs[0], *card_.stream);
  const bool prefill = batch.spans.front().phase == Phase::prefill;
  card_forward(card_, {batch, inputs, prefill ? LinearPass::prefill : LinearPass::decode});
  n_logits_ = 0;
  const int64_t n = batch.n_columns() * model_.config.hidden_size;
  const float* rows = card_.rows.read(card_.buffers.normed, n);
  rows_.assign(rows, rows + n);
  return rows_.data();
}

void CudaBackend::choose(const Batch& batch, const std::vector<ColumnAsk>& asks,
                         int64_t first_column) {
  card_logits(card_, first_column, std::ssize(asks));
  tokens_.send(asks, batch);
  tokens_.choose();
  tokens_.fetch();
  card_.stream->synchronize();
  first_logits_ = first_column;
  n_logits_ = std::ssize(asks);
  first_choice_ = first_column;
  n_chained_ = 0;
}

const float* CudaBackend::decode(const Batch& batch, const std::vector<ColumnAsk>& asks,
                                 int n_drafts) {
  if (has_row_hooks(batch)) {
    const float* rows = forward(batch);
    choose(batch, asks, 0);
    return rows;
  }
  begin_pass(batch);
  const std::vector<GdnSpan> rounds = rounds_of(batch);
  const PassInputs inputs = senders_[0].send(batch, rounds, card_.buffers.inputs[0], *card_.stream);
  tokens_.send(asks, batch);
  n_chained_ = chains_drafts_ ? static_cast<size_t>(n_drafts) : 0;
  rounds_.run(batch, inputs, static_cast<int>(n_chained_), &*draft_rows_);
  card_.stream->synchronize();
  rounds_.collect_times();
  first_logits_ = 0;
  n_logits_ = batch.n_columns();
  first_choice_ = 0;
  rows_.resize(static_cast<size_t>(batch.n_columns() * model_.config.hidden_size));
  const uint16_t* codes = rounds_.rows();
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = bf16_to_float(codes[i]);
  return rows_.data();
}

std::optional<ColumnChoice> CudaBackend::choice(int64_t column) const {
  return tokens_.choice(static_cast<size_t>(column - first_choice_));
}

std::vector<int32_t> CudaBackend::drafts(size_t span, int64_t n_taken) const {
  std::vector<int32_t> drafts;
  if (n_chained_ == 0) return drafts;
  if (tokens_.n_taken(span) != n_taken) {
    fail_with(ExitCode::device_error, "{}: kept {} columns of a round where {} stay",
              card_.device.facts().name, tokens_.n_taken(span), n_taken);
  }
  for (size_t step = 0; step < n_chained_; ++step) drafts.push_back(tokens_.draft(step, span));
  return drafts;
}

const float* CudaBackend::logits(int64_t first_column, int64_t n_columns) {
  const bool there =
      first_column >= first_logits_ && first_column + n_columns <= first_logits_ + n_logits_;
  if (!there) {
    card_logits(card_, first_column, n_columns);
    first_logits_ = first_column;
    n_logits_ = n_columns;
  }
  const int64_t vocab = model_.config.vocab_size;
  logits_.resize(static_cast<size_t>(n_columns * vocab));
  for (int64_t i = 0; i < n_columns; ++i) {
    card_.stream->copy_out(
        logits_.data() + i * vocab,
        card_.buffers.logits + (first_column - first_logits_ + i) * card_.logits_stride, vocab * 4);
  }
  card_.stream->synchronize();
  return logits_.data();
}

// The last column of each span as a batch of its own, without rows of pictures: their embeddings
// are in the residual stream already.
Batch last_columns(const Batch& batch) {
  Batch last;
  last.round = batch.round;
  for (const Span& span : batch.spans) {
    Span one = span;
    const auto column = static_cast<size_t>(span.column + span.n_tokens - 1);
    one.first_position = span.first_position + span.n_tokens - 1;
    one.n_tokens = 1;
    one.column = last.n_columns();
    last.ids.push_back(batch.ids[column]);
    last.positions.push_back(batch.positions[column]);
    last.spans.push_back(one);
  }
  return last;
}

void CudaBackend::mtp_forward(const Batch& batch, const float* hidden, std::vector<float>* out) {
  const int64_t width = model_.config.hidden_size;
  begin_pass(batch);
  const PassInputs inputs = senders_[0].send(batch, {}, card_.buffers.inputs[0], *card_.stream);
  card_.rows.write(hidden, batch.n_columns() * width, card_.buffers.mtp_hidden);
  const LinearPass products = batch.mtp_of_prompt ? LinearPass::prefill : LinearPass::decode;
  card_mtp_store(card_, {batch, inputs, products}, card_.buffers.mtp_hidden);
  if (out == nullptr) {
    card_.stream->synchronize();
    return;
  }
  const Batch last = last_columns(batch);
  const PassInputs last_inputs = senders_[1].send(last, {}, card_.buffers.inputs[1], *card_.stream);
  for (size_t i = 0; i < batch.spans.size(); ++i) {
    const int64_t from = batch.spans[i].column + batch.spans[i].n_tokens - 1;
    const auto to = static_cast<int64_t>(i);
    if (from == to) continue;
    card_.stream->copy_within(card_.buffers.mtp_x + to * width, card_.buffers.mtp_x + from * width,
                              width * 2);
  }
  card_mtp_attend(card_, {last, last_inputs}, card_.buffers.mtp_x);
  const int64_t n = last.n_columns() * width;
  const float* rows = card_.rows.read(card_.buffers.normed, n);
  out->assign(rows, rows + n);
}

const float* CudaBackend::draft_logits(const float* rows, int64_t n_rows) {
  card_.rows.write(rows, n_rows * model_.config.hidden_size, card_.buffers.normed);
  return draft_rows_->logits(n_rows);
}

void CudaBackend::rewind(Sequence& sequence, int64_t n_keep) {
  int32_t& pending = pending_[static_cast<size_t>(sequence.slot)];
  LOCKSTEP_CHECK(n_keep >= 0 && n_keep <= pending);
  pending = static_cast<int32_t>(n_keep);
}

std::vector<GdnState> CudaBackend::states(const Sequence& sequence) {
  const CardStates& at = card_.states;
  settle(sequence);
  const int channels = model_.weights.dims.gdn.conv_channels();
  std::vector<GdnState> states = zero_states(model_.config, model_.weights.dims);
  std::vector<uint16_t> inputs(static_cast<size_t>(channels) * (kConvWidth - 1));
  for (int layer = 0; layer < at.n_layers; ++layer) {
    GdnState& state = states[static_cast<size_t>(layer)];
    const int64_t index = int64_t{sequence.slot} * at.n_layers + layer;
    card_.stream->copy_out(state.state.data(), at.delta + index * at.delta_size, at.delta_size * 4);
    card_.stream->copy_out(inputs.data(), at.window + index * at.window_size,
                           std::ssize(inputs) * 2);
    card_.stream->synchronize();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const size_t tap = i / static_cast<size_t>(channels);
      const size_t channel = i % static_cast<size_t>(channels);
      state.conv[channel * (kConvWidth - 1) + tap] = bf16_to_float(inputs[i]);
    }
  }
  return states;
}

void CudaBackend::set_states(Sequence& sequence, const std::vector<GdnState>& states) {
  card_.device.make_current();
  const CardStates& at = card_.states;
  const int channels = model_.weights.dims.gdn.conv_channels();
  std::vector<uint16_t> inputs(static_cast<size_t>(channels) * (kConvWidth - 1));
  for (int layer = 0; layer < at.n_layers; ++layer) {
    const GdnState& state = states[static_cast<size_t>(layer)];
    const int64_t index = int64_t{sequence.slot} * at.n_layers + layer;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const size_t tap = i / static_cast<size_t>(channels);
      const size_t channel = i % static_cast<size_t>(channels);
      inputs[i] = float_to_bf16(state.conv[channel * (kConvWidth - 1) + tap]);
    }
    card_.stream->copy_in(at.delta + index * at.delta_size, state.state.data(), at.delta_size * 4);
    card_.stream->copy_in(at.window + index * at.window_size, inputs.data(),
                          std::ssize(inputs) * 2);
    card_.stream->synchronize();
  }
}

void CudaBackend::copy_page(uint32_t from, uint32_t to) {
  card_.device.make_current();
  const KvCacheShape& shape = model_.kv.shape();
  const int64_t page_bytes = kv_page_bytes(shape.type, shape.n_kv_heads, shape.head_dim);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    std::byte* pool = card_.kv_layer(layer, 0).pool;
    card_.stream->copy_within(pool + to * page_bytes, pool + from * page_bytes, page_bytes);
  }
}

std::vector<float> CudaBackend::kv_rows(int kv_layer, const Sequence& sequence, bool value,
                                        int64_t first, int64_t n) {
  const KvCacheShape& shape = model_.kv.shape();
  const int64_t page_bytes = kv_page_bytes(shape.type, shape.n_kv_heads, shape.head_dim);
  const int64_t first_page = first / kPageTokens;
  const int64_t n_pages = KvCache::pages_for(first + n) - first_page;
  std::vector<std::byte> pages(static_cast<size_t>(n_pages * page_bytes));
  std::vector<uint32_t> places;
  const KvView on_card = card_.kv_layer(kv_layer, sequence.slot);
  for (int64_t i = 0; i < n_pages; ++i) {
    const int64_t page = sequence.page_table[static_cast<size_t>(first_page + i)];
    card_.stream->copy_out(pages.data() + i * page_bytes, on_card.pool + page * page_bytes,
                           page_bytes);
    places.push_back(static_cast<uint32_t>(i));
  }
  card_.stream->synchronize();
  const KvView here{shape.type, shape.n_kv_heads, shape.head_dim, pages.data(), places.data()};
  return read_kv_rows(here, value, first - first_page * kPageTokens, n);
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const Model& model, const EngineOptions& options) {
  if (options.precision != Precision::bf16) {
    fail_with(ExitCode::usage, "--precision fp32: CUDA kernels keep bfloat16; use --backend cpu");
  }
  return std::make_unique<CudaBackend>(model, options);
}

}  // namespace lockstep
