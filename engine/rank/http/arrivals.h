// Requests in the order of their numbers, whatever order they arrive in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "engine/rank/http/ticket.h"
#include "engine/rank/request.h"

namespace lockstep {

struct Arrival {
  uint64_t sequence = 0;
  std::optional<Request> request;  // none: the number is void
  std::shared_ptr<Ticket> ticket;
  bool cancelled = false;  // was asked to end before its turn came
};

class Arrivals {
 public:
  // The number for a request that came without one.
  uint64_t unused_number() const;

  enum class Outcome { taken, duplicate, too_far };
  Outcome add(Arrival arrival);

  // Marks a number that has not had its turn. False when it has.
  bool cancel(uint64_t sequence);

  // Every arrival whose turn has come: all lower numbers have had theirs.
  std::vector<Arrival> take_due();

  uint64_t next() const { return next_; }
  size_t n_early() const { return early_.size(); }

  static constexpr uint64_t kMaxAhead = 4096;

 private:
  uint64_t next_ = 1;
  std::map<uint64_t, Arrival> early_;
  std::set<uint64_t> cancelled_;  // numbers at or after next_
};

}  // namespace lockstep
