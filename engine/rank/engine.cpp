#include "engine/rank/engine.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/base/seconds_since.h"
#include "engine/ops/argmax/argmax.h"
#include "engine/ops/gated_delta/gated_delta.h"
#include "engine/rank/memory_plan.h"
#include "engine/rank/planted_faults.h"
#include "engine/rank/state_taps.h"

namespace lockstep {
namespace {

// Timing is reported, never acted upon.
using Clock = std::chrono::steady_clock;

StepLogits largest_logits(const float* logits, int64_t n, int count, int32_t fed) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const auto top = order.begin() + std::min<int64_t>(count, n);
  std::partial_sort(order.begin(), top, order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  StepLogits step;
  step.ids.assign(order.begin(), top);
  for (const int32_t id : step.ids) step.values.push_back(logits[id]);
  step.log_sum_exp = log_sum_exp(logits, n);
  step.chosen_value = logits[fed];
  return step;
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::length:
      return "length";
    case FinishReason::stop:
      return "stop";
    default:
      return "cancelled";
  }
}

RankEngine::RankEngine(const ModelConfig& config, const RankWeights& weights,
                       const EngineOptions& options, Communicator& comm, ThreadPool& pool)
    : options_(options),
      context_limit_(context_limit(config, options)),
      kv_(kv_shape(config, weights.dims, weights.mtp != nullptr, options),
          options.device == nullptr ? KvHome::host : KvHome::device),
      prefix_cache_(kv_, options.prefix_cache_bytes, options.prefill_grid),
      model_{config,
             weights,
             options.kv_type == KvType::int8 && options.rotate_keys,
             options.precision == Precision::bf16 ? Rounding::bf16 : Rounding::none,
             rope_inverse_frequencies(config.rope_theta, config.rotary_dim),
             kv_,
             comm,
             pool},
      backend_(make_backend(model_, options)),
      drafter_(model_, *backend_,
               {options.n_drafts, live_tokens(config, options), options.draft_window,
                options.draft_vocab}) {
  if (options.prefill_grid <= 0 || options.prefill_grid % kGdnChunk != 0) {
    fail_with(ExitCode::usage, "--prefill-grid {}: must be a positive multiple of {}",
              options.prefill_grid, kGdnChunk);
  }
  if (options.n_drafts > 0 && weights.mtp == nullptr) {
    fail("--mtp {}: the checkpoint has no MTP layer; use --mtp 0", options.n_drafts);
  }
  slots_.resize(static_cast<size_t>(options.n_slots));
}

RankEngine::~RankEngine() = default;

std::vector<RequestResult> RankEngine::run(const std::vector<Request>& requests) {
  entries_.clear();
  for (const Request& request : requests) check_request(request);
  const uint64_t first = n_submitted_;
  for (const Request& request : requests) submit(request);
  while (step()) {
  }
  std::vector<RequestResult> results;
  for (uint64_t id = first; id < n_submitted_; ++id) results.push_back(entries_.at(id).result);
  return results;
}

const TapRecorder* RankEngine::taps(uint64_t id) const {
  const auto at = entries_.find(id);
  return at == entries_.end() ? nullptr : at->second.taps.get();
}

const Slot* RankEngine::slot_of(uint64_t id) const {
  for (const auto& slot : slots_) {
    if (slot != nullptr && slot->id == id) return slot.get();
  }
  return nullptr;
}

bool RankEngine::step() {
  record_ = {};
  emitted_.clear();
  admit();
  for (auto& slot : slots_) {
    if (slot == nullptr || slot->decoding || slot->finished) continue;
    prefill_chunk(*slot);
    break;
  }
  decode_round();
  agree();
  return !waiting_.empty() || std::any_of(slots_.begin(), slots_.end(),
                                          [](const auto& slot) { return slot != nullptr; });
}

void RankEngine::prefill_chunk(Slot& slot) {
  const auto start = Clock::now();
  const int64_t hidden = model_.config.hidden_size;
  const int64_t begin = slot.sequence.n_positions;
  const int64_t grid_end = (begin / options_.prefill_grid + 1) * options_.prefill_grid;
  const int64_t end = std::min(slot.prompt_tokens(), grid_end);
  Batch batch;
  batch.round = static_cast<int>(round_);
  batch.add({&slot.sequence, Phase::prefill, begin, end - begin, 0, slot.prompt_tokens(), slot.taps,
             0, &slot.images.tap_rows(), slot.request->injection.get()},
            slot.request->prompt.data() + begin, slot.images.rows(model_, begin, end, slot.taps));
  const float* rows = backend_->forward(batch);
  slot.sequence.n_positions = end;
  slot.result->computed_tokens += end - begin;
  const float* last_row = rows + (end - begin - 1) * hidden;
  // All rows, also of a chunk that chooses no token: what differs here is in the states from now
  // on.
  digest_rows(rows, end - begin);
  if (end == slot.prompt_tokens()) {
    record_states(model_, *backend_, slot);
    plant_state_faults(model_.config, model_.comm.rank(), static_cast<int>(round_), slot.sequence);
    backend_->choose(batch, {ask_for(slot, 0)}, end - begin - 1);
    host_logits_ = {};
    slot.decoding = true;
    const std::vector<int32_t> tokens = accept_columns(slot, end - begin - 1, 1);
    emitted_.emplace_back(slot.id, tokens);
  }
  const bool at_snapshot = !slot.snapshot_points.empty() && slot.snapshot_points.front() == end;
  if (at_snapshot) {
    slot.snapshot_points.erase(slot.snapshot_points.begin());
    prefix_cache_.insert({slot.keys.begin(), slot.keys.begin() + end}, slot.sequence,
                         backend_->states(slot.sequence), last_row, hidden, round_);
  }
  advance_mtp_in_prefill(slot, rows, begin, end);
  if (slot.decoding) slot.images.release();
  slot.result->prefill_s += seconds_since(start);
}

void RankEngine::digest_rows(const float* rows, int64_t n_rows) {
  const std::span values(rows, static_cast<size_t>(n_rows * model_.config.hidden_size));
  record_.rows_digest = digest64(std::as_bytes(values), record_.rows_digest);
}

// MTP slots up to end-1: slot i needs token i+1, which for the last slot of the prompt is the first
// generated token.
void RankEngine::advance_mtp_in_prefill(Slot& slot, const float* rows, int64_t begin, int64_t end) {
  if (!drafter_.active() || slot.finished) return;
  const int64_t hidden = model_.config.hidden_size;
  Drafter::Advance advance{&slot, slot.n_mtp_slots, {}, {}, false};
  for (int64_t i = slot.n_mtp_slots; i < end; ++i) {
    const bool in_prompt = i + 1 < slot.prompt_tokens();
    advance.tokens.push_back(in_prompt ? slot.request->prompt[static_cast<size_t>(i + 1)]
                                       : slot.next_token);
  }
  // Slot i sees what stands at position i+1: of a pad its picture's row.
  advance.embedding_rows = slot.images.rows(model_, slot.n_mtp_slots + 1, end + 1, slot.taps);
  if (slot.n_mtp_slots < begin) advance.hidden = std::move(slot.carried_hidden);
  advance.hidden.insert(advance.hidden.end(), rows, rows + (end - begin) * hidden);
  advance.propose = slot.decoding && slot.tokens_left() > 0;
  advance.of_prompt = true;
  drafter_.advance({std::move(advance)}, static_cast<int>(round_));
}

void RankEngine::decode_round() {
  const auto start = Clock::now();
  Batch batch;
  batch.round = static_cast<int>(round_);
  std::vector<Slot*> running;
  std::vector<ColumnAsk> asks;
  for (auto& slot : slots_) {
    const bool ready = slot != nullptr && slot->decoding && !slot->finished;
    const bool fresh = ready && !emitted_.empty() && emitted_.front().first == slot->id;
    if (!ready || fresh) continue;  // a prompt that ended in this round decodes from the next one
    std::vector<int32_t> tokens = {slot->next_token};
    tokens.insert(tokens.end(), slot->drafts.begin(), slot->drafts.end());
    batch.add({&slot->sequence, Phase::decode, slot->sequence.n_positions,
               static_cast<int64_t>(tokens.size()), 0, slot->prompt_tokens(), slot->taps, 0,
               nullptr, slot->request->injection.get()},
              tokens.data());
    running.push_back(slot.get());
    for (size_t i = 0; i < tokens.size(); ++i) asks.push_back(ask_for(*slot, i));
  }
  if (running.empty()) return;
  const int64_t hidden = model_.config.hidden_size;
  const float* rows = backend_->decode(batch, asks, drafter_.n_in_round());
  host_logits_ = {};
  if (!backend_->choice(0)) host_logits_ = {backend_->logits(0, batch.n_columns()), 0};
  digest_rows(rows, batch.n_columns());

  std::vector<Drafter::Advance> advances;
  for (size_t i = 0; i < running.size(); ++i) {
    Slot& slot = *running[i];
    const Span& span = batch.spans[i];
    const std::vector<int32_t> tokens = accept_columns(slot, span.column, span.n_tokens);
    const auto n_taken = static_cast<int64_t>(tokens.size());
    emitted_.emplace_back(slot.id, tokens);
    slot.sequence.n_positions += n_taken;
    if (n_taken < span.n_tokens && !slot.finished) {
      backend_->rewind(slot.sequence, n_taken);
    }
    if (!drafter_.active() || slot.finished) continue;
    std::vector<int32_t> drafts = backend_->drafts(i, n_taken);
    if (!drafts.empty()) {
      drafter_.take(slot, span.first_position + n_taken, std::move(drafts));
    } else {
      const float* taken = rows + span.column * hidden;
      advances.push_back({&slot, span.first_position, tokens,
                          std::vector<float>(taken, taken + n_taken * hidden), true});
      plant_hidden_faults(advances.back().hidden, hidden);
    }
  }
  drafter_.advance(advances, static_cast<int>(round_));
  const double elapsed_s = seconds_since(start);
  for (Slot* slot : running) slot->result->decode_s += elapsed_s;
}

// Walks the columns of a round: chooses each column's token and goes on to the next column only
// when the draft there is that token. Returns the tokens that were taken, the last of them not yet
// fed.
std::vector<int32_t> RankEngine::accept_columns(Slot& slot, int64_t first_column,
                                                int64_t n_columns) {
  const int64_t n_drafts = n_columns - 1;
  if (n_drafts > 0 && slot.request->report_drafts) {
    const auto step = static_cast<int64_t>(slot.result->ids.size()) - 1;
    slot.result->mtp.draft_rounds.push_back({step, slot.drafts});
  }
  if (n_drafts > 0 && fault_fires("sampling.penalties-see-refused-drafts")) {
    for (const int32_t draft : slot.drafts) ++slot.history.output_counts[draft];
  }
  std::vector<int32_t> taken;
  for (int64_t column = 0; column < n_columns; ++column) {
    const int32_t token = choose(slot, first_column + column);
    taken.push_back(token);
    slot.finished = ends_with_token(slot);
    bool accepted = column < n_drafts && slot.drafts[static_cast<size_t>(column)] == token;
    if (n_drafts > 0 && column == 0 && fault_fires("speculation.first-draft-taken"))
      accepted = true;
    if (accepted) ++slot.result->mtp.accepted;
    if (slot.finished || !accepted) break;
  }
  if (n_drafts > 0) {
    ++slot.result->mtp.rounds;
    slot.result->mtp.drafted += n_drafts;
  }
  return taken;
}

// For the token after `n_before` drafts of the slot's next round.
ColumnAsk RankEngine::ask_for(const Slot& slot, size_t n_before) const {
  const size_t step = slot.result->ids.size() + n_before;
  const Request& request = *slot.request;
  ColumnAsk ask{&request.sampling, &slot.history, std::span(slot.drafts).first(n_before),
                slot.prompt_tokens() + static_cast<int64_t>(step)};
  if (step < request.force_ids.size()) ask.forced = request.force_ids[step];
  ask.n_top = request.n_logits;
  return ask;
}

// Logits of a column of the last pass, on the host.
const float* RankEngine::column_logits(int64_t column) {
  const int64_t vocab = model_.config.vocab_size;
  if (host_logits_.values == nullptr) host_logits_ = {backend_->logits(column, 1), column};
  if (column == host_logits_.first_column || !backend_->choice(column)) {
    return host_logits_.values + (column - host_logits_.first_column) * vocab;
  }
  host_logits_ = {backend_->logits(column, 1), column};
  return host_logits_.values;
}

// The token of a column of the last pass where the backend leaves the choice to the host.
int32_t RankEngine::sample_on_host(const Slot& slot, int64_t column, int64_t position) {
  if (fault_fires("sampling.rng-counter-reused")) position = slot.sequence.n_positions;
  const SamplingParams& params =
      planted_sampling(slot.request->sampling, model_.comm.rank(), position);
  return sample({column_logits(column), model_.config.vocab_size,
                 live_tokens(model_.config, options_), params, slot.history, position});
}

// Books the token that follows the slot's committed positions and the tokens taken since.
int32_t RankEngine::choose(Slot& slot, int64_t column) {
  const size_t step = slot.result->ids.size();
  const int64_t position = slot.prompt_tokens() + static_cast<int64_t>(step);
  std::optional<ColumnChoice> made = backend_->choice(column);
  const int32_t chosen = made ? made->token : sample_on_host(slot, column, position);
  if (chosen < 0) {
    fail_with(ExitCode::device_error, "request {}: logits of position {} hold NaN",
              slot.request->name, position);
  }
  const std::vector<int32_t>& forced = slot.request->force_ids;
  slot.next_token = step < forced.size() ? forced[step] : chosen;
  const FaultSite site{-1, model_.comm.rank(), static_cast<int>(round_)};
  if (fault_fires("sampling.token-bit-flipped", site)) slot.next_token ^= 1;
  slot.result->ids.push_back(chosen);
  if (slot.request->n_logits > 0) {
    const bool reported = made && !made->logits.ids.empty() && slot.next_token == chosen;
    slot.result->logits.push_back(
        reported ? std::move(made->logits)
                 : largest_logits(column_logits(column), model_.config.vocab_size,
                                  slot.request->n_logits, slot.next_token));
  }
  ++slot.history.output_counts[slot.next_token];
  return slot.next_token;
}

bool RankEngine::ends_with_token(const Slot& slot) const {
  const Request& request = *slot.request;
  const auto lists = [&](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), slot.next_token) != ids.end();
  };
  const bool stops =
      (!request.ignore_eos && lists(model_.config.eos_token_ids)) || lists(request.stop_ids) ||
      (request.stop_watcher != nullptr && request.stop_watcher->accept(slot.next_token));
  slot.result->finish_reason = stops ? FinishReason::stop : FinishReason::length;
  return stops || slot.tokens_left() <= 0;
}

void RankEngine::release(std::unique_ptr<Slot>& slot) {
  remember_for_faults(slot->sequence);
  kv_.give_back(slot->sequence.page_table);
  if (events_.on_finish) events_.on_finish(slot->id, *slot->result);
  slot.reset();
}

}  // namespace lockstep
