#include "engine/rank/http/ticket.h"

#include <utility>

namespace lockstep {

bool Ticket::put(RoundOutput output) {
  const std::lock_guard lock(mutex_);
  overflowed_ = overflowed_ || outputs_.size() >= kMaxRounds;
  if (overflowed_) return false;
  outputs_.push_back(std::move(output));
  changed_.notify_all();
  return true;
}

void Ticket::finish(const Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  outcome_ = outcome;
  outcome_.too_slow = overflowed_;
  changed_.notify_all();
}

Ticket::State Ticket::take(RoundOutput& output, Outcome& outcome, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return finished_ || !outputs_.empty(); });
  if (!outputs_.empty()) {
    output = std::move(outputs_.front());
    outputs_.pop_front();
    return State::output;
  }
  if (!finished_) return State::waiting;
  outcome = outcome_;
  return State::finished;
}

}  // namespace lockstep
