// The queue in front of the ranks: at most as many requests as there are slots are with the ranks,
// the others wait here in order and survive a restart.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/serve/asio.h"
#include "engine/serve/exchange.h"
#include "engine/serve/rank_http.h"

namespace lockstep::serve {

struct DispatcherOptions {
  int n_ranks = 2;
  int n_slots = 2;
  size_t max_queue = 64;
  Clock::duration timeout = std::chrono::minutes(10);  // of a request, from its arrival
  size_t reader_buffer_bytes = 1 << 20;                // unread bytes of a stream
  Clock::duration cancel_deadline = std::chrono::seconds(30);
};

// Every request that was taken is in exactly one of these, or still queued or in flight.
struct DispatcherCounts {
  uint64_t taken = 0;
  uint64_t finished = 0;
  uint64_t cancelled = 0;  // client gone, slow reader, time-out
  uint64_t failed = 0;     // rank failure, undeliverable
  uint64_t refused = 0;    // queue full or shutting down: not taken
};

class Dispatcher {
 public:
  struct Events {
    // As RankPair::suspect.
    std::function<void(int rank, std::string reason, bool may_be_ending)> on_trouble;
    std::function<void()> on_work_done;
    std::function<void()> on_idle;  // nothing queued, nothing in flight
  };

  Dispatcher(asio::io_context& io, const DispatcherOptions& options, Events events);

  // False when the queue is full or closed.
  bool submit(const std::shared_ptr<Exchange>& exchange);
  void close();
  // Ends what waits, because no ranks will come.
  void refuse_queued(const std::string& reason);

  // The client needs no more of it: takes it from the queue, or cancels it on every rank.
  void abandon(const std::shared_ptr<Exchange>& exchange, Outcome outcome,
               std::optional<Refusal> refusal = std::nullopt);

  void ranks_ready(std::shared_ptr<const RankEndpoints> endpoints);
  // Ends every request in flight; returns their names and phases. The queue stays.
  std::string ranks_failed(const std::string& reason);

  int n_ranks() const { return options_.n_ranks; }
  std::shared_ptr<const RankEndpoints> endpoints() const;  // null while no ranks are ready
  const std::deque<std::shared_ptr<Exchange>>& queued() const { return queue_; }
  std::vector<std::shared_ptr<Exchange>> in_flight() const;
  // The ranks owe it no round yet: they still read it or one before it (a long prompt takes its
  // time) or encode a picture, as they said a moment ago. No excuse for ever: it ends behind the
  // time-out.
  bool is_being_read(const Exchange& exchange, Clock::time_point now) const;
  const DispatcherCounts& counts() const { return counts_; }
  uint64_t n_answer_pieces() const { return n_answer_pieces_; }  // grows while ranks answer

 private:
  using Links = std::vector<std::unique_ptr<RankLink>>;  // one to each rank, in their order

  // One start of the ranks.
  struct Ranks {
    std::shared_ptr<const RankEndpoints> endpoints;
    uint64_t next_sequence = 1;
    bool lost = false;
    // Connected ahead for the next request: it need not wait until the ranks have taken its
    // connections.
    Links spare;
    Clock::time_point spare_since;
    bool connecting_ahead = false;
  };
  // One request with the ranks.
  struct Flight {
    std::shared_ptr<Exchange> exchange;
    std::shared_ptr<Ranks> ranks;
    Links links;
    int n_talking = 0;
    bool answered = false;  // the first bytes have come
    bool cancelled = false;
    std::unique_ptr<Signal> landed;
    std::vector<bool> delivered;  // by rank
  };

  void pump();
  Task<> fly(std::shared_ptr<Flight> flight);
  Task<int> connect_to_all(std::shared_ptr<Ranks> ranks, Links& links);
  Task<bool> connect(std::shared_ptr<Flight> flight);
  Task<> connect_ahead(std::shared_ptr<Ranks> ranks);
  static Links take_spare(Ranks& ranks);
  Task<> talk(std::shared_ptr<Flight> flight, int rank);
  Task<> void_number(std::shared_ptr<Flight> flight);
  Task<> cancel(std::shared_ptr<Flight> flight);
  Task<> expire(std::weak_ptr<Exchange> exchange);
  void trouble(const Flight& flight, int rank, std::string reason, bool may_be_ending);
  void retire(const Exchange& exchange);
  bool is_flying(const std::shared_ptr<Flight>& flight) const;
  void land(const std::shared_ptr<Flight>& flight);

  asio::io_context& io_;
  const DispatcherOptions options_;
  const Events events_;
  std::deque<std::shared_ptr<Exchange>> queue_;
  std::vector<std::shared_ptr<Flight>> flights_;
  std::shared_ptr<Ranks> ranks_;  // null while there are none
  DispatcherCounts counts_;
  uint64_t n_answer_pieces_ = 0;
  bool closed_ = false;
};

}  // namespace lockstep::serve
