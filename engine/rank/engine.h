// The scheduler of one rank: admits requests into slots, prefills on the grid, decodes all running
// slots together, speculates, caches prefixes. It is a deterministic function of the request log:
// no wall time and no thread timing enters. Two ranks that get the same requests take the same
// steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/comm/communicator.h"
#include "engine/lockstep/round_record.h"
#include "engine/model/config.h"
#include "engine/rank/backend.h"
#include "engine/rank/drafter.h"
#include "engine/rank/engine_options.h"
#include "engine/rank/kv_cache.h"
#include "engine/rank/layers.h"
#include "engine/rank/limits.h"
#include "engine/rank/prefix_cache.h"
#include "engine/rank/request.h"
#include "engine/rank/slot.h"

namespace lockstep {

// Called between rounds, after both ranks have agreed on the round.
struct EngineEvents {
  std::function<void(uint64_t id, const std::vector<int32_t>& tokens)> on_tokens;
  std::function<void(uint64_t id, const RequestResult& result)> on_finish;
  std::function<void(const RoundRecord& record)> on_round;
  // Every rank's record of the round, before they are compared.
  std::function<void(const std::vector<RoundRecord>& records)> on_exchange;
};

class RankEngine {
 public:
  // All references must outlive the engine.
  RankEngine(const ModelConfig& config, const RankWeights& weights, const EngineOptions& options,
             Communicator& comm, ThreadPool& pool);
  ~RankEngine();

  // Throws Error, before any work, when the request can never fit or holds a token outside the
  // vocabulary.
  void check_request(const Request& request) const;

  void set_events(EngineEvents events) { events_ = std::move(events); }

  // Queues a request; ids count from 0 in order. Both ranks must submit the same requests in the
  // same order, but need not do so at the same moment: a request starts once both have it.
  uint64_t submit(Request request);

  // Takes an id for a request that this rank will never have: it ends as cancelled, on all ranks,
  // in the round in which all have seen it.
  uint64_t submit_void();

  // Ends a request at the end of the round in which either rank has asked for it, whether it runs
  // or waits.
  void cancel(uint64_t id);

  // One round: admit, one prefill chunk, one decode pass, agree. False when nothing is left to do.
  bool step();

  // Work that all ranks know of: they all step.
  bool has_agreed_work() const;
  // Something that the peers have not been told: this rank steps, and thereby wakes them.
  bool has_news() const { return shown_end() > n_shown_; }

  // Drops a finished request, its result and taps.
  void forget(uint64_t id) { entries_.erase(id); }

  // submit, step to the end, and the results in order. Taps are kept until the next run.
  std::vector<RequestResult> run(const std::vector<Request>& requests);

  const TapRecorder* taps(uint64_t id) const;
  // The slot of a running request, or null.
  const Slot* slot_of(uint64_t id) const;
  const PrefixCache& prefix_cache() const { return prefix_cache_; }
  const KvCache& kv_cache() const { return kv_; }
  Backend& backend() const { return *backend_; }
  int64_t max_context() const { return context_limit_; }
  const std::vector<std::unique_ptr<Slot>>& slots() const { return slots_; }
  size_t n_waiting() const { return waiting_.size(); }

 private:
  struct Entry {
    Request request;
    RequestResult result;
    std::unique_ptr<TapRecorder> taps;
  };

  void admit();
  void check_assumed_context(const Request& request) const;
  bool make_room(const Request& request, std::unique_ptr<Slot>& slot, int index);
  void restore(Slot& slot, const Snapshot& snapshot);
  void prefill_chunk(Slot& slot);
  void digest_rows(const float* rows, int64_t n_rows);
  void advance_mtp_in_prefill(Slot& slot, const float* rows, int64_t begin, int64_t end);
  void decode_round();
  ColumnAsk ask_for(const Slot& slot, size_t n_before) const;
  std::vector<int32_t> accept_columns(Slot& slot, int64_t first_column, int64_t n_columns);
  int32_t sample_on_host(const Slot& slot, int64_t column, int64_t position);
  int32_t choose(Slot& slot, int64_t column);
  const float* column_logits(int64_t column);
  bool ends_with_token(const Slot& slot) const;
  void book_round();
  void release(std::unique_ptr<Slot>& slot);
  void agree();
  void drop_cancelled_waiting(uint64_t cancelled);
  uint64_t shown_end() const;
  void audit_pages() const;

  const EngineOptions options_;
  const int64_t context_limit_;
  KvCache kv_;
  PrefixCache prefix_cache_;
  Model model_;
  std::unique_ptr<Backend> backend_;
  Drafter drafter_;
  EngineEvents events_;

  std::map<uint64_t, Entry> entries_;
  std::deque<uint64_t> waiting_;
  std::vector<std::unique_ptr<Slot>> slots_;
  uint64_t n_submitted_ = 0;
  uint64_t n_shown_ = 0;        // requests that the last record told of
  uint64_t n_agreed_ = 0;       // requests that both ranks have
  uint64_t cancel_wanted_ = 0;  // slot bits asked for on this rank
  std::set<uint64_t> cancelled_while_waiting_;
  int64_t round_ = 0;
  RoundRecord record_;
  // Of columns of the last pass, as far as they are on the host.
  struct {
    const float* values = nullptr;
    int64_t first_column = 0;
  } host_logits_;
  std::vector<std::pair<uint64_t, std::vector<int32_t>>> emitted_;  // of this round
};

}  // namespace lockstep
