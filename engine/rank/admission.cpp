// How requests get in: checks, the queue, pages and cached prefixes.
#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/fault.h"
#include "engine/rank/engine.h"
#include "engine/rank/planted_faults.h"

namespace lockstep {

void RankEngine::check_request(const Request& request) const {
  if (request.prompt.empty()) fail("request {}: the prompt is empty", request.name);
  if (request.max_tokens < 1) fail("request {}: max_tokens must be at least 1", request.name);
  const int64_t needed = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (needed > context_limit_) {
    fail("request {}: {} prompt tokens and max_tokens {} need {} positions, the context has {}",
         request.name, request.prompt.size(), request.max_tokens, needed, context_limit_);
  }
  check_assumed_context(request);
  check_prompt_images(request.prompt, request.images, model_.config,
                      model_.weights.vision != nullptr, "request " + request.name);
  if (request.injection != nullptr) {
    request.injection->check(static_cast<int64_t>(request.prompt.size()), request.max_tokens,
                             "request " + request.name);
  }
  for (const auto* ids : {&request.prompt, &request.force_ids}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= model_.config.vocab_size) {
        fail("request {}: token {} is outside the vocabulary of {}", request.name, id,
             model_.config.vocab_size);
      }
    }
  }
}

void RankEngine::check_assumed_context(const Request& request) const {
  if (request.assumed_context % options_.prefill_grid != 0 ||
      request.assumed_context >= static_cast<int64_t>(request.prompt.size())) {
    fail("request {}: assumed_context {} must be a multiple of --prefill-grid {}, before a prompt",
         request.name, request.assumed_context, options_.prefill_grid);
  }
  if (request.assumed_context > 0 && !request.images.empty()) {
    fail("request {}: assumed_context holds text; leave images out", request.name);
  }
}

uint64_t RankEngine::submit(Request request) {
  check_request(request);
  const uint64_t id = n_submitted_++;
  Entry& entry = entries_[id];
  entry.request = std::move(request);
  // A cached prefix would leave the taps of its positions out, and must not keep what was put in
  // or assumed.
  if (entry.request.taps || entry.request.injection != nullptr ||
      entry.request.assumed_context > 0) {
    entry.request.use_prefix_cache = false;
  }
  if (entry.request.taps) entry.taps = std::make_unique<TapRecorder>(*entry.request.taps);
  waiting_.push_back(id);
  return id;
}

void RankEngine::admit() {
  // Booked as seen, and not here yet.
  constexpr int64_t kLateRounds = 4;
  const FaultSite site{-1, model_.comm.rank(), static_cast<int>(round_)};
  if (round_ < kLateRounds && fault_fires("scheduler.seen-ahead-of-arrival", site)) return;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] != nullptr) continue;
    if (waiting_.empty() || waiting_.front() >= n_agreed_) return;
    const uint64_t id = waiting_.front();
    Entry& entry = entries_.at(id);
    auto slot = std::make_unique<Slot>();
    slot->id = id;
    slot->request = &entry.request;
    slot->result = &entry.result;
    slot->taps = entry.taps.get();
    if (!make_room(entry.request, slot, static_cast<int>(i))) return;
    waiting_.pop_front();
    for (const int32_t token : entry.request.prompt) ++slot->history.prompt_counts[token];
    slots_[i] = std::move(slot);
    if (cancelled_while_waiting_.erase(id) > 0) cancel_wanted_ |= uint64_t{1} << i;
  }
}

// Reserves every page that the request can need, and starts it from a cached prefix where there is
// one.
bool RankEngine::make_room(const Request& request, std::unique_ptr<Slot>& slot, int index) {
  backend_->begin(slot->sequence, index);
  plant_fresh_sequence_faults(slot->sequence);
  slot->place_prompt(model_.config);
  const int64_t n_pages = KvCache::pages_for(slot->prompt_tokens() + request.max_tokens);
  const Snapshot* snapshot =
      request.use_prefix_cache ? prefix_cache_.find(slot->keys, round_) : nullptr;
  // All pages of the snapshot but the last are shared. The last is copied: its MTP slot depends on
  // this request's next token.
  const auto n_shared = snapshot == nullptr ? 0 : static_cast<int64_t>(snapshot->pages.size()) - 1;
  if (!prefix_cache_.free_pages(n_pages - n_shared, snapshot)) return false;
  const std::vector<uint32_t> fresh = kv_.take_pages(n_pages - n_shared);
  if (snapshot != nullptr) {
    slot->sequence.page_table.assign(snapshot->pages.begin(), snapshot->pages.end() - 1);
    kv_.share(slot->sequence.page_table);
    if (!fault_fires("cache.page-not-copied")) {
      backend_->copy_page(snapshot->pages.back(), fresh.front());
    }
    restore(*slot, *snapshot);
  }
  slot->sequence.page_table.insert(slot->sequence.page_table.end(), fresh.begin(), fresh.end());
  if (request.assumed_context > 0) {
    backend_->assume(slot->sequence, request.assumed_context);
    slot->sequence.n_positions = request.assumed_context;
    slot->n_mtp_slots = request.assumed_context;
  }
  slot->snapshot_points = request.use_prefix_cache ? prefix_cache_.snapshot_points(
                                                         slot->keys, slot->sequence.n_positions)
                                                   : std::vector<int64_t>();
  return true;
}

void RankEngine::restore(Slot& slot, const Snapshot& snapshot) {
  // A planted fault leaves the states of a fresh sequence.
  if (!fault_fires("cache.wrong-grid-point")) backend_->set_states(slot.sequence, snapshot.states);
  plant_restored_faults(slot.sequence);
  slot.sequence.n_positions = snapshot.position();
  slot.n_mtp_slots = snapshot.position() - 1;
  slot.carried_hidden = snapshot.hidden;
  if (fault_fires("cache.hidden-lost")) {
    std::fill(slot.carried_hidden.begin(), slot.carried_hidden.end(), 0.0f);
  }
  slot.result->cache_hit_tokens = snapshot.position();
}

}  // namespace lockstep
