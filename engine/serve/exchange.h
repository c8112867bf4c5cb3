// One client request that needs the engine, from its arrival to its end: what the client asked,
// what the ranks have answered so far, and how it ended. The dispatcher fills it, the session of
// the client empties it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/serve/agreed_stream.h"
#include "engine/serve/asio.h"
#include "engine/serve/messages.h"

namespace lockstep::serve {

class Exchange {
 public:
  Exchange(asio::io_context& io, ClientRequest request, int n_ranks);

  const ClientRequest request;
  std::string id;
  uint64_t seed = 0;  // used when the body has none
  int64_t unix_time_s = 0;

  // The dispatcher's part.
  uint64_t sequence = 0;  // 0: not given to the ranks
  Phase phase = Phase::queued;
  Clock::time_point arrived;
  Clock::time_point dispatched;
  Clock::time_point first_byte;
  Clock::time_point prepared;  // when a rank last said why no round is due: it reads, it encodes

  // Each returns false when the ranks differ; `difference` then says in what.
  bool take_head(int rank, AnswerHead head);
  bool take_body(int rank, std::string_view bytes);
  bool take_end(int rank);
  bool ended_on_all_ranks() const { return n_ended_ == n_ranks_; }
  std::string difference;

  // Ends it for the client; the first call counts. Without a refusal nobody is there to be told.
  void end(Outcome outcome, std::optional<Refusal> refusal = std::nullopt);

  // The session's part.
  const std::optional<AnswerHead>& head() const { return agreed_head_; }
  // Agreed bytes that may go to the client now: whole events of a stream, any bytes otherwise.
  std::string take_pending();
  size_t n_pending() const { return pending_.size(); }
  Outcome outcome() const { return outcome_; }
  const std::optional<Refusal>& refusal() const { return refusal_; }
  Signal changed;
  std::function<void()> cut_off;  // ends a connection that takes no more bytes
  // Sends what is pending without waiting; false when the session has to do it.
  std::function<bool()> send_at_once;

 private:
  int n_ranks_;
  int n_ended_ = 0;
  std::optional<AnswerHead> first_head_;  // of the rank that answered first
  int n_heads_ = 0;
  std::optional<AnswerHead> agreed_head_;
  AgreedStream agreed_;
  std::string unfinished_event_;
  std::string pending_;
  Outcome outcome_ = Outcome::running;
  std::optional<Refusal> refusal_;
};

}  // namespace lockstep::serve
