#include "engine/serve/front.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/serve/error_body.h"
#include "engine/serve/event_log.h"
#include "engine/serve/session.h"

namespace lockstep::serve {
namespace {

constexpr int kSendBufferBytes = 256 << 10;  // what the system may hold of a stream nobody reads
constexpr size_t kMaxTurningAway = 64;

}  // namespace

Front::Front(asio::io_context& io, const FrontOptions& options, const ApiKeys& keys,
             Dispatcher& dispatcher, std::map<std::string, Page> pages)
    : io_(io),
      options_(options),
      keys_(keys),
      dispatcher_(dispatcher),
      pages_(std::move(pages)),
      acceptor_(io) {}

Front::~Front() = default;

uint16_t Front::open() {
  ErrorCode error;
  const asio::ip::address address = asio::ip::make_address(options_.host, error);
  if (error) fail("--host {}: is no IP address", options_.host);
  const Tcp::endpoint endpoint(address, options_.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(1024, error);
  if (error) {
    fail("cannot listen on {} port {}: {}; choose another --port", options_.host, options_.port,
         error.message());
  }
  spawn(io_, accept());
  return acceptor_.local_endpoint().port();
}

Task<> Front::accept() {
  while (!closing_) {
    ErrorCode error;
    Tcp::socket socket(io_);
    co_await acceptor_.async_accept(socket, into(error));
    if (closing_) co_return;
    if (error) {
      log_event("accept_failed", {{"reason", error.message()}});
      co_await sleep_for(io_, std::chrono::milliseconds(50));
      continue;
    }
    socket.non_blocking(true, error);
    socket.set_option(Tcp::no_delay(true), error);
    socket.set_option(Tcp::socket::send_buffer_size(kSendBufferBytes), error);
    if (sessions_.size() >= options_.max_connections) {
      ++counts_.turned_away;
      if (n_turning_away_ < kMaxTurningAway) spawn(io_, turn_away(std::move(socket)));
      continue;
    }
    ++counts_.connections;
    sessions_.push_back(std::make_shared<Session>(*this, std::move(socket)));
    spawn(io_, serve(sessions_.back()));
  }
}

// Says why, without reading what the client wants.
Task<> Front::turn_away(Tcp::socket socket) {
  ++n_turning_away_;
  const std::string body =
      error_json("/", {503, "overloaded_error", "too many connections; try again later"});
  const std::string text =
      response_head({503, {{"content-type", "application/json"}, {"retry-after", "1"}}},
                    {false, false}, body.size()) +
      body;
  ErrorCode ignored;
  socket.write_some(asio::buffer(text), ignored);  // fits the empty send buffer
  socket.shutdown(Tcp::socket::shutdown_send, ignored);
  // Closing at once could reset the connection before the client has read that.
  co_await sleep_for(io_, std::chrono::milliseconds(200));
  --n_turning_away_;
}

Task<> Front::serve(std::shared_ptr<Session> session) {
  co_await session->run();
  session->close();
  sessions_.remove(session);
}

void Front::close() {
  closing_ = true;
  ErrorCode ignored;
  acceptor_.close(ignored);
  for (const auto& session : sessions_) {
    if (session->idle()) session->close();
  }
}

}  // namespace lockstep::serve
