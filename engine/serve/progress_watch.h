// Decides whether the ranks still move. A function of what it is told, so that tests need no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::serve {

class ProgressWatch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  ProgressWatch(std::chrono::steady_clock::duration deadline, int n_ranks, TimePoint now)
      : deadline_(deadline),
        ranks_(static_cast<size_t>(n_ranks), Rank{std::nullopt, now, now}),
        alive_(now) {}

  // Rank `rank` said that it has finished `round` rounds. Silence is no report.
  void report(int rank, uint64_t round, TimePoint now);

  // True when requests are with the ranks and for the whole deadline nothing has moved: no piece of
  // an answer came, and at least one rank reported no new round.
  bool stalled(TimePoint now, bool requests_in_flight, uint64_t n_answer_pieces);

  // The rank that holds the others up: the one not heard of for longest if it is silent, else the
  // one that is behind; -1 when neither says anything.
  int slowest_rank(TimePoint now) const;
  std::string describe(int rank, TimePoint now) const;

 private:
  struct Rank {
    std::optional<uint64_t> round;
    TimePoint heard;  // the last report
    TimePoint moved;  // the last report of a new round
  };

  std::chrono::steady_clock::duration deadline_;
  std::vector<Rank> ranks_;
  uint64_t n_pieces_ = 0;
  TimePoint alive_;  // idle, or a piece of an answer came
};

}  // namespace lockstep::serve
