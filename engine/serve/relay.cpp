// The part of a session that relays an answer of the ranks.
#include <fmt/core.h>

#include <ctime>

#include "engine/serve/error_body.h"
#include "engine/serve/event_log.h"
#include "engine/serve/secrets.h"
#include "engine/serve/session.h"

namespace lockstep::serve {
namespace {

constexpr size_t kMaxPipelinedBytes = 64 << 10;  // that a client may send ahead

double ms_between(Clock::time_point begin, Clock::time_point end) {
  if (begin == Clock::time_point() || end == Clock::time_point()) return 0.0;
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

Task<bool> Session::generate(ClientRequest request) {
  const auto exchange =
      std::make_shared<Exchange>(front_.io_, std::move(request), front_.dispatcher_.n_ranks());
  exchange->id = request_id_;
  exchange->seed = random_seed();
  exchange->unix_time_s = static_cast<int64_t>(std::time(nullptr));
  body_bytes_sent_ = 0;
  bool go_on = false;
  if (front_.dispatcher_.submit(exchange)) {
    go_on = co_await relay(exchange);
  } else {
    const bool closing = front_.closing_;
    const Refusal refusal{503, "overloaded_error",
                          closing ? "the server is shutting down" : "the queue is full"};
    go_on = co_await refuse(refusal);
  }
  log_request(*exchange);
  co_return go_on;
}

// Beside the relay: notices that the client has gone, in every phase. What it sends meanwhile is
// its next request and stays in the buffer.
Task<> Session::watch_client(std::shared_ptr<Exchange> exchange) {
  const std::shared_ptr<Session> self = shared_from_this();
  for (;;) {
    ErrorCode error;
    const size_t n = co_await socket_.async_read_some(buffer_.prepare(4096), into(error));
    buffer_.commit(n);
    if (error == asio::error::operation_aborted) break;  // the relay is over, or gave up
    if (error || buffer_.size() > kMaxPipelinedBytes) {
      front_.dispatcher_.abandon(exchange, Outcome::client_gone);
      break;
    }
  }
  watching_ = false;
  watch_ended_.notify();
}

Task<bool> Session::relay(std::shared_ptr<Exchange> exchange) {
  const std::weak_ptr<Session> weak = weak_from_this();
  // A write that its client does not read would hold the connection until the reader time-out.
  exchange->cut_off = [weak] {
    if (const auto self = weak.lock()) self->close();
  };
  exchange->send_at_once = [weak, &exchange = *exchange] {
    const auto self = weak.lock();
    return self && self->relay_at_once(exchange);
  };
  head_sent_ = false;
  unsent_.clear();
  watching_ = true;
  spawn(front_.io_, watch_client(exchange));
  bool sent = true;
  while (sent && exchange->outcome() == Outcome::running) {
    const bool streams = exchange->head() && exchange->head()->is_event_stream();
    if (streams && (exchange->n_pending() > 0 || !unsent_.empty())) {
      sent = co_await relay_step(*exchange, false);
    } else {
      relay_waits_ = true;
      co_await exchange->changed.wait();
      relay_waits_ = false;
    }
  }
  exchange->send_at_once = nullptr;
  if (!sent) {
    // Ours to tell apart: the reader time-out closes the socket.
    front_.dispatcher_.abandon(exchange,
                               socket_.is_open() ? Outcome::client_gone : Outcome::slow_reader);
  }
  const bool go_on = sent && co_await finish_relay(*exchange);
  ErrorCode ignored;
  socket_.cancel(ignored);
  while (watching_) co_await watch_ended_.wait();
  co_return go_on;
}

// From where the bytes of a stream arrive, while the relay waits for them: without a turn of the
// event loop. What the connection does not take is left to the relay, which waits for room.
bool Session::relay_at_once(Exchange& exchange) {
  if (!relay_waits_ || !head_sent_ || !unsent_.empty()) return false;
  if (exchange.n_pending() == 0) return true;  // no event has ended
  std::string text = body_text(exchange.take_pending());
  text.erase(0, write_now(text));
  unsent_ = std::move(text);
  return unsent_.empty();
}

// `bytes` of the answer as they go out, counted.
std::string Session::body_text(const std::string& bytes) {
  body_bytes_sent_ += bytes.size();
  front_.counts_.answer_bytes += bytes.size();
  return chunk(bytes, connection_);
}

// Sends what is agreed upon so far, behind the head when that is still to come; the `last` step
// ends the stream.
Task<bool> Session::relay_step(Exchange& exchange, bool last) {
  std::string text = std::exchange(unsent_, {});
  if (!head_sent_) {
    AnswerHead head = *exchange.head();
    head.headers.emplace_back("x-request-id", exchange.id);
    connection_.keep_alive = connection_.keep_alive && !connection_.http_1_0;
    status_sent_ = head.status;
    text = response_head(head, connection_, std::nullopt);
    head_sent_ = true;
  }
  text += body_text(exchange.take_pending());
  if (last) text += last_chunk(connection_);
  const bool sent = co_await write(std::move(text));
  co_return sent;
}

// The end of the answer, or what stands in for it. False when the connection must end.
Task<bool> Session::finish_relay(Exchange& exchange) {
  const bool finished = exchange.outcome() == Outcome::finished;
  if (!finished && !exchange.refusal()) co_return false;  // nobody is there
  bool sent = true;
  if (finished && !exchange.head()->is_event_stream()) {
    RankReply reply{*exchange.head(), exchange.take_pending()};
    body_bytes_sent_ = reply.body.size();
    sent = co_await send_reply(reply);
    co_return sent;
  }
  if (!finished && !head_sent_) {
    sent = co_await refuse(*exchange.refusal());
    co_return sent;
  }
  if (finished) {
    sent = co_await relay_step(exchange, true);
  } else {
    // The stream ends with the error and not as streams end; the connection ends with it.
    connection_.keep_alive = false;
    const std::string event = error_event(target_, *exchange.refusal());
    sent = co_await write(std::exchange(unsent_, {}) + chunk(event, connection_) +
                          last_chunk(connection_));
  }
  co_return sent&& connection_.keep_alive;
}

void Session::log_request(const Exchange& exchange) const {
  const Clock::time_point now = Clock::now();
  ErrorCode ignored;
  const auto queue_end = exchange.dispatched == Clock::time_point() ? now : exchange.dispatched;
  log_event("request", {{"id", exchange.id},
                        {"method", method_},
                        {"path", std::string(path_of(target_))},
                        {"status", static_cast<int64_t>(status_sent_)},
                        {"outcome", std::string(outcome_name(exchange.outcome()))},
                        {"phase", std::string(phase_name(exchange.phase))},
                        {"sequence", static_cast<int64_t>(exchange.sequence)},
                        {"seed", static_cast<int64_t>(exchange.seed)},
                        {"queue_ms", ms_between(exchange.arrived, queue_end)},
                        {"first_byte_ms", ms_between(exchange.arrived, exchange.first_byte)},
                        {"total_ms", ms_between(exchange.arrived, now)},
                        {"body_bytes", static_cast<int64_t>(exchange.request.body.size())},
                        {"answer_bytes", static_cast<int64_t>(body_bytes_sent_)}});
}

}  // namespace lockstep::serve
