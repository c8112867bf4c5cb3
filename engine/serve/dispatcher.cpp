#include "engine/serve/dispatcher.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/serve/event_log.h"

namespace lockstep::serve {
namespace {

constexpr std::chrono::milliseconds kCallDeadline{2000};  // of a cancel or a void
// A cancel may overtake its request, because they travel on different connections.
constexpr std::chrono::milliseconds kCancelAgain{250};
// A rank closes a connection that brings no request for ten seconds (HttpLimits::header_deadline):
// long before that, because a request given to a connection that is being closed would be lost.
constexpr std::chrono::seconds kSpareAge{4};

Refusal restart_refusal(const std::string& reason) {
  return {
      503, "api_error",
      fmt::format("the engine halted and is being restarted ({}); send the request again", reason)};
}

}  // namespace

Dispatcher::Dispatcher(asio::io_context& io, const DispatcherOptions& options, Events events)
    : io_(io), options_(options), events_(std::move(events)) {}

bool Dispatcher::submit(const std::shared_ptr<Exchange>& exchange) {
  // Requests that can start at once do not count as queued.
  const size_t room = options_.max_queue + static_cast<size_t>(options_.n_slots) - flights_.size();
  if (closed_ || queue_.size() >= room) {
    ++counts_.refused;
    return false;
  }
  ++counts_.taken;
  queue_.push_back(exchange);
  spawn(io_, expire(exchange));
  pump();
  return true;
}

Task<> Dispatcher::expire(std::weak_ptr<Exchange> weak) {
  // A timer of its own for each request would live as long as its time-out: look again instead.
  for (;;) {
    Clock::time_point end;
    {
      const std::shared_ptr<Exchange> exchange = weak.lock();
      if (!exchange || exchange->outcome() != Outcome::running) co_return;
      end = exchange->arrived + options_.timeout;
      if (Clock::now() >= end) {
        abandon(
            exchange, Outcome::timed_out,
            Refusal{504, "timeout_error", "the request took longer than the server's --timeout"});
        co_return;
      }
    }
    const Clock::duration step =
        std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(500));
    co_await sleep_for(io_, step);
  }
}

void Dispatcher::abandon(const std::shared_ptr<Exchange>& exchange, Outcome outcome,
                         std::optional<Refusal> refusal) {
  if (exchange->outcome() != Outcome::running) return;
  exchange->end(outcome, std::move(refusal));
  const auto queued = std::find(queue_.begin(), queue_.end(), exchange);
  if (queued != queue_.end()) {
    queue_.erase(queued);
    retire(*exchange);
    return;
  }
  for (const std::shared_ptr<Flight>& flight : flights_) {
    if (flight->exchange == exchange && !flight->cancelled) {
      flight->cancelled = true;
      spawn(io_, cancel(flight));
    }
  }
}

void Dispatcher::ranks_ready(std::shared_ptr<const RankEndpoints> endpoints) {
  ranks_ = std::make_shared<Ranks>();
  ranks_->endpoints = std::move(endpoints);
  spawn(io_, connect_ahead(ranks_));
  pump();
}

std::string Dispatcher::ranks_failed(const std::string& reason) {
  std::string names;
  if (ranks_) {
    ranks_->lost = true;
    ranks_->spare.clear();
  }
  ranks_ = nullptr;
  // The last first, so that those which go back into the queue keep their order.
  const std::vector<std::shared_ptr<Flight>> lost(flights_.rbegin(), flights_.rend());
  for (const std::shared_ptr<Flight>& flight : lost) {
    Exchange& exchange = *flight->exchange;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", exchange.id,
                         phase_name(exchange.phase));
    if (exchange.sequence == 0 && exchange.outcome() == Outcome::running) {
      // Not one byte of it reached a rank: it waits again, before those that came later.
      exchange.phase = Phase::queued;
      queue_.push_front(flight->exchange);
    } else {
      exchange.end(Outcome::rank_failure, restart_refusal(reason));
      retire(exchange);
    }
    for (const auto& link : flight->links) link->close();
    std::erase(flights_, flight);
    flight->landed->notify();
  }
  return names;
}

void Dispatcher::close() {
  closed_ = true;
  if (ranks_) ranks_->spare.clear();  // the ranks wait for their connections to end
}

void Dispatcher::refuse_queued(const std::string& reason) {
  close();
  for (const std::shared_ptr<Exchange>& exchange : std::exchange(queue_, {})) {
    exchange->end(Outcome::rank_failure, Refusal{503, "api_error", reason});
    retire(*exchange);
  }
}

std::shared_ptr<const RankEndpoints> Dispatcher::endpoints() const {
  return ranks_ ? ranks_->endpoints : nullptr;
}

std::vector<std::shared_ptr<Exchange>> Dispatcher::in_flight() const {
  std::vector<std::shared_ptr<Exchange>> exchanges;
  for (const std::shared_ptr<Flight>& flight : flights_) exchanges.push_back(flight->exchange);
  return exchanges;
}

bool Dispatcher::is_being_read(const Exchange& exchange, Clock::time_point now) const {
  if (now - exchange.arrived > options_.timeout + options_.cancel_deadline) return false;
  return std::any_of(flights_.begin(), flights_.end(), [&](const auto& flight) {
    const Exchange& earlier = *flight->exchange;
    return earlier.sequence != 0 && earlier.sequence <= exchange.sequence &&
           now - earlier.prepared < options_.cancel_deadline / 2;
  });
}

void Dispatcher::pump() {
  while (ranks_ && !queue_.empty() && flights_.size() < static_cast<size_t>(options_.n_slots)) {
    auto flight = std::make_shared<Flight>();
    flight->exchange = queue_.front();
    queue_.pop_front();
    flight->ranks = ranks_;
    flight->landed = std::make_unique<Signal>(io_);
    flight->exchange->dispatched = Clock::now();
    flight->exchange->phase = Phase::prefill;
    flights_.push_back(flight);
    spawn(io_, fly(flight));
  }
  if (queue_.empty() && flights_.empty() && events_.on_idle) events_.on_idle();
}

void Dispatcher::trouble(const Flight& flight, int rank, std::string reason, bool may_be_ending) {
  if (!flight.ranks->lost) events_.on_trouble(rank, std::move(reason), may_be_ending);
}

// Connects to the ranks in turn. Returns the one that takes no connection, or how many there are.
Task<int> Dispatcher::connect_to_all(std::shared_ptr<Ranks> ranks, Links& links) {
  for (int rank = 0; rank < options_.n_ranks; ++rank) {
    links.push_back(std::make_unique<RankLink>(io_, rank));
    const bool connected = co_await links.back()->connect(*ranks->endpoints);
    if (!connected || ranks->lost) co_return rank;
  }
  co_return options_.n_ranks;
}

// Connects first: a number is given out only when every rank will hear of it.
Task<bool> Dispatcher::connect(std::shared_ptr<Flight> flight) {
  flight->links = take_spare(*flight->ranks);
  if (!flight->links.empty()) co_return true;
  const int rank = co_await connect_to_all(flight->ranks, flight->links);
  if (rank == options_.n_ranks) co_return true;
  trouble(*flight, rank, "takes no connection", true);
  co_return false;
}

// Says nothing of a rank that takes no connection: the request that needs one will.
Task<> Dispatcher::connect_ahead(std::shared_ptr<Ranks> ranks) {
  if (closed_ || ranks->lost || ranks->connecting_ahead || !ranks->spare.empty()) co_return;
  ranks->connecting_ahead = true;
  Links links;
  const int n_connected = co_await connect_to_all(ranks, links);
  ranks->connecting_ahead = false;
  if (n_connected < options_.n_ranks || closed_) co_return;
  ranks->spare = std::move(links);
  ranks->spare_since = Clock::now();
}

// None when one of them cannot be relied upon.
Dispatcher::Links Dispatcher::take_spare(Ranks& ranks) {
  Links links = std::exchange(ranks.spare, {});
  const bool usable =
      Clock::now() - ranks.spare_since < kSpareAge &&
      std::all_of(links.begin(), links.end(), [](const auto& link) { return link->is_open(); });
  if (!usable) links.clear();
  return links;
}

Task<> Dispatcher::fly(std::shared_ptr<Flight> flight) {
  const bool connected = co_await connect(flight);
  // When the ranks are lost, ranks_failed has done or will do the rest.
  if (!connected) co_return;
  Exchange& exchange = *flight->exchange;
  if (exchange.outcome() == Outcome::running) {
    exchange.sequence = flight->ranks->next_sequence++;
    flight->delivered.assign(static_cast<size_t>(options_.n_ranks), false);
    flight->n_talking = options_.n_ranks;
    for (int rank = 0; rank < options_.n_ranks; ++rank) spawn(io_, talk(flight, rank));
    while (flight->n_talking > 0 && !flight->ranks->lost) co_await flight->landed->wait();
  }
  land(flight);
}

Task<> Dispatcher::talk(std::shared_ptr<Flight> flight, int rank) {
  Exchange& exchange = *flight->exchange;
  RankLink& link = *flight->links[static_cast<size_t>(rank)];
  const bool sent = co_await link.send(*flight->ranks->endpoints, exchange);
  if (flight->ranks->lost) co_return;
  if (!sent) {
    // Written in part: this rank will never have the request, whatever the other one has.
    co_await void_number(flight);
  } else {
    flight->delivered[static_cast<size_t>(rank)] = true;
    const std::function<void()> on_bytes = [this, &flight, &exchange] {
      ++n_answer_pieces_;
      // Not before: until the first bytes are there, every core works for them.
      if (!std::exchange(flight->answered, true)) spawn(io_, connect_ahead(flight->ranks));
      const bool streams = exchange.head() && exchange.head()->is_event_stream();
      if (streams && exchange.n_pending() > options_.reader_buffer_bytes) {
        abandon(flight->exchange, Outcome::slow_reader);
      }
    };
    const RankLink::End end = co_await link.receive(exchange, on_bytes);
    if (flight->ranks->lost) co_return;
    // What a cancelled answer looks like depends on how far its writer had come: nobody reads it.
    if (end == RankLink::End::differs && !flight->cancelled) {
      trouble(*flight, -1,
              fmt::format("TP2 LOCKSTEP FAILURE in the answers to request {}: {}", exchange.id,
                          exchange.difference),
              false);
      co_return;
    }
    if (end == RankLink::End::lost && !flight->cancelled &&
        exchange.outcome() != Outcome::undeliverable) {
      trouble(*flight, rank,
              fmt::format("rank {} broke off its answer to request {} ({})", rank, exchange.id,
                          phase_name(exchange.phase)),
              true);
      co_return;
    }
  }
  --flight->n_talking;
  flight->landed->notify();
}

// One rank did not get the number. The ranks that have the request must know that it is void before
// the others do: else they could start it alone.
Task<> Dispatcher::void_number(std::shared_ptr<Flight> flight) {
  Exchange& exchange = *flight->exchange;
  exchange.end(Outcome::undeliverable,
               Refusal{503, "api_error", "the request did not reach the engine; send it again"});
  std::vector<int> order;
  for (int rank = 0; rank < options_.n_ranks; ++rank) {
    const bool has_it = flight->delivered[static_cast<size_t>(rank)];
    order.insert(has_it ? order.begin() : order.end(), rank);
  }
  for (const int rank : order) {
    const auto reply =
        co_await call_rank(io_, *flight->ranks->endpoints, rank,
                           sequence_request("/lockstep/void", exchange.sequence), kCallDeadline);
    if (flight->ranks->lost) co_return;
    if (!reply || reply->head.status != 200) {
      trouble(*flight, rank,
              fmt::format("rank {} does not take the void of number {}", rank, exchange.sequence),
              true);
      co_return;
    }
  }
  log_event("void", {{"id", exchange.id}, {"sequence", static_cast<int64_t>(exchange.sequence)}});
}

bool Dispatcher::is_flying(const std::shared_ptr<Flight>& flight) const {
  return !flight->ranks->lost &&
         std::find(flights_.begin(), flights_.end(), flight) != flights_.end();
}

// Asks every rank to end the request, again and again until its answers have ended.
Task<> Dispatcher::cancel(std::shared_ptr<Flight> flight) {
  Clock::time_point deadline = Clock::now() + options_.cancel_deadline;
  while (is_flying(flight)) {
    if (is_being_read(*flight->exchange, Clock::now())) {
      deadline = Clock::now() + options_.cancel_deadline;
    }
    const uint64_t sequence = flight->exchange->sequence;
    for (int rank = 0; rank < options_.n_ranks && sequence != 0; ++rank) {
      co_await call_rank(io_, *flight->ranks->endpoints, rank,
                         sequence_request("/lockstep/cancel", sequence), kCallDeadline);
      if (!is_flying(flight)) co_return;
    }
    if (Clock::now() > deadline) {
      trouble(*flight, -1,
              fmt::format("the ranks do not end the cancelled request {}", flight->exchange->id),
              false);
      co_return;
    }
    co_await sleep_for(io_, kCancelAgain);
  }
}

void Dispatcher::retire(const Exchange& exchange) {
  switch (exchange.outcome()) {
    case Outcome::running:
      break;
    case Outcome::finished:
      ++counts_.finished;
      break;
    case Outcome::client_gone:
    case Outcome::slow_reader:
    case Outcome::timed_out:
      ++counts_.cancelled;
      break;
    case Outcome::rank_failure:
    case Outcome::undeliverable:
      ++counts_.failed;
      break;
  }
}

void Dispatcher::land(const std::shared_ptr<Flight>& flight) {
  if (flight->ranks->lost) return;  // ranks_failed has booked it
  for (const auto& link : flight->links) link->close();
  std::erase(flights_, flight);
  retire(*flight->exchange);
  if (flight->exchange->outcome() == Outcome::finished) events_.on_work_done();
  pump();
}

}  // namespace lockstep::serve
