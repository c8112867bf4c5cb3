// The parts of Asio and Beast that the proxy is made of. Heavy: for the sources of engine/serve.
//
// The proxy runs on one thread. Its coroutines share state without locks; whatever may change while
// a coroutine waits is looked at again afterwards.
#pragma once

#include <utility>  // Boost 1.74's awaitable.hpp uses std::exchange without it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <exception>

namespace lockstep::serve {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
template <typename T = void>
using Task = asio::awaitable<T>;
using Clock = std::chrono::steady_clock;

// Completion of an awaited operation that puts its failure into `error` instead of throwing.
inline auto into(ErrorCode& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

// Runs `task` beside its caller. An exception in it ends io.run(), which throws it.
inline void spawn(asio::io_context& io, Task<> task) {
  asio::co_spawn(io, std::move(task), [](std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
  });
}

// What coroutines wait on until another one has changed something they look at.
class Signal {
 public:
  explicit Signal(asio::io_context& io) : timer_(io) {}

  void notify() { timer_.cancel(); }

  // Returns after the next notify, or at `deadline`. The caller looks again at what it waits for.
  Task<> wait_until(Clock::time_point deadline) {
    ErrorCode ignored;
    timer_.expires_at(deadline);
    co_await timer_.async_wait(into(ignored));
  }
  Task<> wait() { return wait_until(Clock::time_point::max()); }

 private:
  asio::steady_timer timer_;  // one waiter: setting its time would end another's wait
};

inline Task<> sleep_for(asio::io_context& io, Clock::duration duration) {
  asio::steady_timer timer(io, duration);
  ErrorCode ignored;
  co_await timer.async_wait(into(ignored));
}

}  // namespace lockstep::serve
