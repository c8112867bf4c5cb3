// What the ranks agree on after every round: arrivals, cancels, and that they computed the same.
#include <algorithm>

#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/rank/engine.h"

namespace lockstep {
namespace {

constexpr size_t kWaitingBits = 64 - kMaxSlots;  // of a record's cancel bits

}  // namespace

uint64_t RankEngine::submit_void() {
  const uint64_t id = n_submitted_++;
  entries_[id];
  waiting_.push_back(id);
  cancelled_while_waiting_.insert(id);
  return id;
}

void RankEngine::cancel(uint64_t id) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] != nullptr && slots_[i]->id == id) {
      cancel_wanted_ |= uint64_t{1} << i;
      return;
    }
  }
  if (std::find(waiting_.begin(), waiting_.end(), id) != waiting_.end()) {
    cancelled_while_waiting_.insert(id);
  }
}

// Fills this round's record, exchanges it, halts on a difference, and only then lets the round's
// tokens out. Arrivals count once both ranks have them (the smaller number); cancels are OR-ed.
void RankEngine::agree() {
  book_round();
  std::vector<RoundRecord> all(static_cast<size_t>(model_.comm.n_ranks()));
  model_.comm.all_gather_bytes(std::as_bytes(std::span(&record_, 1)),
                               std::as_writable_bytes(std::span(all)));
  if (events_.on_exchange) events_.on_exchange(all);
  uint64_t cancelled = 0;
  n_agreed_ = record_.seen;
  for (const RoundRecord& other : all) {
    const std::string field = differing_field(all[0], other);
    if (!field.empty()) {
      fail_with(ExitCode::lockstep_failure,
                "TP2 LOCKSTEP FAILURE round {} field {}: rank 0 [{}] rank 1 [{}]", record_.round,
                field, to_text(all[0]), to_text(other));
    }
    n_agreed_ = std::min(n_agreed_, other.seen);
    cancelled |= other.cancel_bits;
  }
  if (events_.on_round) events_.on_round(record_);
  if (events_.on_tokens) {
    for (const auto& [id, tokens] : emitted_) events_.on_tokens(id, tokens);
  }
  cancel_wanted_ = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] == nullptr) continue;
    const bool cancel = (cancelled >> i & 1u) != 0 && !slots_[i]->finished;
    if (cancel) slots_[i]->result->finish_reason = FinishReason::cancelled;
    if (cancel || slots_[i]->finished) release(slots_[i]);
  }
  drop_cancelled_waiting(cancelled);
  audit_pages();
  ++round_;
}

// Bits from kMaxSlots on stand for the first requests that wait. Those that all ranks have come in
// the same order on all of them, so a bit means the same request everywhere; for others it counts
// once they are agreed, because the rank that asks repeats it.
void RankEngine::drop_cancelled_waiting(uint64_t cancelled) {
  for (size_t i = std::min(waiting_.size(), kWaitingBits); i-- > 0;) {
    const uint64_t id = waiting_[i];
    if ((cancelled >> (kMaxSlots + i) & 1u) == 0 || id >= n_agreed_) continue;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    cancelled_while_waiting_.erase(id);
    RequestResult& result = entries_.at(id).result;
    result.finish_reason = FinishReason::cancelled;
    if (events_.on_finish) events_.on_finish(id, result);
  }
}

// A record tells of no more requests than it can cancel.
uint64_t RankEngine::shown_end() const {
  return waiting_.size() > kWaitingBits ? waiting_[kWaitingBits] : n_submitted_;
}

bool RankEngine::has_agreed_work() const {
  return (!waiting_.empty() && waiting_.front() < n_agreed_) ||
         std::any_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return slot != nullptr; });
}

void RankEngine::book_round() {
  record_.round = static_cast<uint64_t>(round_);
  n_shown_ = shown_end();
  record_.seen = n_shown_;
  record_.cancel_bits = cancel_wanted_;
  for (size_t i = 0; i < std::min(waiting_.size(), kWaitingBits); ++i) {
    if (cancelled_while_waiting_.count(waiting_[i]) > 0) {
      record_.cancel_bits |= uint64_t{1} << (kMaxSlots + i);
    }
  }
  for (const auto& [id, tokens] : emitted_) {
    record_.n_tokens += tokens.size();
    record_.token_hash = digest64(std::as_bytes(std::span(tokens)), record_.token_hash ^ id);
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] == nullptr) continue;
    record_.positions += static_cast<uint64_t>(slots_[i]->sequence.n_positions);
    if (slots_[i]->decoding) record_.decoding_slots |= uint64_t{1} << i;
  }
}

void RankEngine::audit_pages() const {
  std::vector<const std::vector<uint32_t>*> owners;
  for (const auto& slot : slots_) {
    if (slot != nullptr) owners.push_back(&slot->sequence.page_table);
  }
  for (const Snapshot& snapshot : prefix_cache_.snapshots()) owners.push_back(&snapshot.pages);
  kv_.audit(owners);
}

}  // namespace lockstep
