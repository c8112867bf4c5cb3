// The thread that owns the engine of a serving rank. Threads of connections hand requests in and
// wait on their tickets; nothing that they do delays a round.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/comm/communicator.h"
#include "engine/lockstep/round_record.h"
#include "engine/rank/engine.h"
#include "engine/rank/http/arrivals.h"
#include "engine/rank/http/ticket.h"

namespace lockstep {

struct SlotStatus {
  uint64_t sequence = 0;
  bool decoding = false;
  int64_t prompt_tokens = 0;
  int64_t prefilled_tokens = 0;
  int64_t generated_tokens = 0;
};

struct CacheStatus {
  int64_t capacity_pages = 0;
  int64_t free_pages = 0;
  int64_t held_pages = 0;    // by running requests, those shared with the cache among them
  int64_t cached_pages = 0;  // by the prefix cache alone
  int64_t snapshots = 0;
};

// As of the last round.
struct SchedulerStatus {
  int64_t rounds = 0;
  std::vector<SlotStatus> slots;
  int64_t waiting = 0;              // requests that have no slot
  std::vector<uint64_t> preparing;  // numbers that are here but not yet handed in
  bool encoding = false;            // a picture, in the round that runs
  CacheStatus cache;
  int64_t requests_finished = 0;
  int64_t requests_cancelled = 0;
  int64_t prompt_tokens = 0;  // totals over finished requests
  int64_t cached_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  double seconds_since_round = 0.0;
  double seconds_since_token = -1.0;  // negative: none yet
};

struct RecordedRound {
  std::vector<RoundRecord> records;  // one a rank
};

class Scheduler {
 public:
  // What happens when the engine halts: gets the error and the last rounds, and does not return.
  using HaltHandler =
      std::function<void(const Error& error, const std::deque<RecordedRound>& rounds)>;

  // Both must outlive the scheduler. `round_log` gets a line a round, or is empty.
  Scheduler(RankEngine& engine, Communicator& comm, HaltHandler on_halt,
            const std::filesystem::path& round_log);
  ~Scheduler();

  // Hands a request in. Without a number it gets the next. Throws ApiError (409) for a number that
  // was used.
  std::shared_ptr<Ticket> submit(std::optional<uint64_t> sequence, Request request);
  // A number that no request will have, or that is to be treated so.
  void make_void(uint64_t sequence);
  // Ends a request in the round in which all ranks know of the wish. A number that has not come
  // yet is remembered; one that has ended is no error.
  void cancel(uint64_t sequence);

  // Lives while a connection's thread makes a request of what a client sent. Whoever waits for
  // rounds can see that none are due yet.
  class Preparation {
   public:
    Preparation(Scheduler& scheduler, std::optional<uint64_t> sequence);
    ~Preparation() { end(); }
    Preparation(const Preparation&) = delete;
    Preparation& operator=(const Preparation&) = delete;
    void end();

   private:
    Scheduler& scheduler_;
    std::optional<uint64_t> sequence_;
  };

  SchedulerStatus status() const;
  std::deque<RecordedRound> last_rounds() const;  // kKeptRounds at most

  // The thread's body: runs rounds until stop().
  void run();
  void stop();

  static constexpr size_t kKeptRounds = 256;

 private:
  void take_inbox();
  void run_round();
  void on_tokens(uint64_t id, const std::vector<int32_t>& tokens);
  void on_finish(uint64_t id, const RequestResult& result);
  void on_exchange(const std::vector<RoundRecord>& records);
  void log_round(const RoundRecord& record);
  void publish_status();

  RankEngine& engine_;
  Communicator& comm_;
  const HaltHandler on_halt_;
  std::FILE* round_log_ = nullptr;

  // Of the scheduler's thread. Engine ids are numbers less one.
  std::map<uint64_t, std::shared_ptr<Ticket>> tickets_;  // by engine id
  std::vector<uint64_t> to_cancel_;
  std::vector<uint64_t> to_forget_;
  SchedulerStatus totals_;
  std::chrono::steady_clock::time_point last_round_;
  std::optional<std::chrono::steady_clock::time_point> last_token_;

  mutable std::mutex mutex_;  // of what follows
  Arrivals arrivals_;
  std::vector<uint64_t> cancels_;
  std::set<uint64_t> preparing_;
  std::deque<RecordedRound> rounds_;
  SchedulerStatus status_;
  std::chrono::steady_clock::time_point status_round_;
  std::optional<std::chrono::steady_clock::time_point> status_token_;

  std::atomic<bool> stopping_{false};
};

}  // namespace lockstep
