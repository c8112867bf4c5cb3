#include "engine/serve/progress_watch.h"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::serve {

void ProgressWatch::report(int rank, uint64_t round, TimePoint now) {
  Rank& entry = ranks_.at(static_cast<size_t>(rank));
  if (entry.round != round) entry.moved = now;
  entry.round = round;
  entry.heard = now;
}

bool ProgressWatch::stalled(TimePoint now, bool requests_in_flight, uint64_t n_answer_pieces) {
  if (!requests_in_flight || n_answer_pieces != n_pieces_) {
    n_pieces_ = n_answer_pieces;
    alive_ = now;
  }
  if (now - alive_ < deadline_) return false;
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [&](const Rank& rank) { return now - rank.moved >= deadline_; });
}

int ProgressWatch::slowest_rank(TimePoint now) const {
  const auto oldest = std::min_element(ranks_.begin(), ranks_.end(),
                                       [](auto& a, auto& b) { return a.heard < b.heard; });
  if (now - oldest->heard >= deadline_) return static_cast<int>(oldest - ranks_.begin());
  const auto [behind, ahead] = std::minmax_element(
      ranks_.begin(), ranks_.end(), [](auto& a, auto& b) { return a.round < b.round; });
  if (behind->round == ahead->round) return ranks_.size() == 1 ? 0 : -1;
  return static_cast<int>(behind - ranks_.begin());
}

std::string ProgressWatch::describe(int rank, TimePoint now) const {
  if (rank < 0) return "neither rank finishes a round";
  const Rank& entry = ranks_.at(static_cast<size_t>(rank));
  if (now - entry.heard >= deadline_) return fmt::format("rank {} does not answer", rank);
  return fmt::format("rank {} is stuck in round {}", rank, entry.round.value_or(0));
}

}  // namespace lockstep::serve
