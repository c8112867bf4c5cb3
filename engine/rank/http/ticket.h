// A request on its way: what the scheduler's thread hands to the thread of its connection.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "engine/rank/request.h"

namespace lockstep {

// What one round has brought for one request.
struct RoundOutput {
  std::vector<int32_t> ids;
  std::vector<StepLogits> logits;  // with Request::n_logits
  int64_t cached_tokens = 0;       // of the prompt
};

// How a request ended; times are for the log alone.
struct Outcome {
  FinishReason reason = FinishReason::cancelled;
  bool too_slow = false;  // cancelled because its reader fell behind
  int64_t cached_tokens = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
  double prefill_s = 0.0;
  double decode_s = 0.0;
};

class Ticket {
 public:
  explicit Ticket(uint64_t sequence) : sequence_(sequence) {}

  uint64_t sequence() const { return sequence_; }

  // False, and nothing is kept, when the reader has left kMaxRounds rounds waiting: the round goes
  // on, the request is to be cancelled.
  bool put(RoundOutput output);
  void finish(const Outcome& outcome);

  enum class State { waiting, output, finished };
  // The next output in order, then the outcome; `waiting` after `limit`.
  State take(RoundOutput& output, Outcome& outcome, std::chrono::milliseconds limit);

  static constexpr size_t kMaxRounds = 4096;

 private:
  const uint64_t sequence_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RoundOutput> outputs_;
  bool overflowed_ = false;
  bool finished_ = false;
  Outcome outcome_;
};

}  // namespace lockstep
