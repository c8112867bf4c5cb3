#include "engine/rank/http/arrivals.h"

#include <algorithm>
#include <utility>

namespace lockstep {

uint64_t Arrivals::unused_number() const {
  return early_.empty() ? next_ : early_.rbegin()->first + 1;
}

Arrivals::Outcome Arrivals::add(Arrival arrival) {
  const uint64_t sequence = arrival.sequence;
  if (sequence < next_ || early_.count(sequence) > 0) return Outcome::duplicate;
  if (sequence >= next_ + kMaxAhead) return Outcome::too_far;
  early_.emplace(sequence, std::move(arrival));
  return Outcome::taken;
}

bool Arrivals::cancel(uint64_t sequence) {
  if (sequence < next_) return false;
  if (sequence < next_ + kMaxAhead) cancelled_.insert(sequence);
  return true;
}

std::vector<Arrival> Arrivals::take_due() {
  std::vector<Arrival> due;
  while (!early_.empty() && early_.begin()->first == next_) {
    due.push_back(std::move(early_.begin()->second));
    due.back().cancelled = cancelled_.erase(next_) > 0;
    early_.erase(early_.begin());
    ++next_;
  }
  return due;
}

}  // namespace lockstep
