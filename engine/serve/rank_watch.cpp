#include "engine/serve/rank_watch.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/serve/rank_lines.h"

namespace lockstep::serve {
namespace {

using std::chrono::milliseconds;

Clock::duration poll_interval(Clock::duration deadline) {
  return std::clamp<Clock::duration>(deadline / 8, milliseconds(25), milliseconds(1000));
}

void note_phases(const RankStatus& status, const Dispatcher& dispatcher) {
  for (const auto& exchange : dispatcher.in_flight()) {
    for (const SlotStatus& slot : status.slots) {
      if (slot.sequence == exchange->sequence && slot.phase == "decode") {
        exchange->phase = Phase::decode;
      }
    }
    const auto& preparing = status.preparing;
    const bool is_read =
        std::find(preparing.begin(), preparing.end(), exchange->sequence) != preparing.end();
    if (is_read || status.encoding) {  // a picture keeps everyone's round waiting
      exchange->prepared = Clock::now();
    }
  }
}

}  // namespace

RankWatch::RankWatch(asio::io_context& io, Dispatcher& dispatcher, Clock::duration deadline,
                     int n_ranks, OnStall on_stall)
    : io_(io),
      dispatcher_(dispatcher),
      deadline_(deadline),
      interval_(poll_interval(deadline)),
      on_stall_(std::move(on_stall)),
      samples_(static_cast<size_t>(n_ranks)) {}

const RankWatch::Sample& RankWatch::sample(int rank) const {
  return samples_.at(static_cast<size_t>(rank));
}

void RankWatch::watch() {
  const auto endpoints = dispatcher_.endpoints();
  const int n_ranks = static_cast<int>(samples_.size());
  const auto progress = std::make_shared<ProgressWatch>(deadline_, n_ranks, Clock::now());
  for (int rank = 0; rank < n_ranks; ++rank) {
    samples_[static_cast<size_t>(rank)] = {};
    spawn(io_, poll(endpoints, rank, progress));
  }
  spawn(io_, judge(endpoints, progress));
}

Task<> RankWatch::poll(std::shared_ptr<const RankEndpoints> endpoints, int rank,
                       std::shared_ptr<ProgressWatch> progress) {
  while (dispatcher_.endpoints() == endpoints) {
    const auto reply =
        co_await call_rank(io_, *endpoints, rank, get_request("/lockstep/status"), deadline_);
    if (dispatcher_.endpoints() != endpoints) co_return;
    if (reply && reply->head.status == 200) {
      if (const auto status = parse_rank_status(reply->body)) {
        progress->report(rank, status->round, Clock::now());
        note_phases(*status, dispatcher_);
        samples_[static_cast<size_t>(rank)] = {reply->body, Clock::now()};
      }
    }
    co_await sleep_for(io_, interval_);
  }
}

Task<> RankWatch::judge(std::shared_ptr<const RankEndpoints> endpoints,
                        std::shared_ptr<ProgressWatch> progress) {
  while (dispatcher_.endpoints() == endpoints) {
    co_await sleep_for(io_, interval_);
    if (dispatcher_.endpoints() != endpoints) co_return;
    const Clock::time_point now = Clock::now();
    const auto in_flight = dispatcher_.in_flight();
    const bool busy = std::any_of(in_flight.begin(), in_flight.end(), [&](const auto& exchange) {
      return !dispatcher_.is_being_read(*exchange, now);
    });
    if (!progress->stalled(now, busy, dispatcher_.n_answer_pieces())) continue;
    const int rank = progress->slowest_rank(now);
    on_stall_(rank,
              fmt::format("watchdog: {} for {:.1f} s; in flight: {}", progress->describe(rank, now),
                          std::chrono::duration<double>(deadline_).count(), requests_in_flight()));
    co_return;
  }
}

std::string RankWatch::requests_in_flight() const {
  std::string names;
  for (const auto& exchange : dispatcher_.in_flight()) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", exchange->id,
                         phase_name(exchange->phase));
  }
  return names;
}

}  // namespace lockstep::serve
