#include "engine/serve/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstring>

#include "engine/base/error.h"

namespace lockstep::serve {
namespace {

// Longer lines are cut: a rank that writes without end must not fill the server's memory.
constexpr size_t kMaxLineBytes = 1 << 20;

struct PipeEnds {
  int read = -1;
  int write = -1;
};

PipeEnds make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
  return {ends[0], ends[1]};
}

}  // namespace

struct RankProcess::Pipe {
  Pipe(asio::io_context& io, int fd) : stream(io, fd) {}
  asio::posix::stream_descriptor stream;
};

RankProcess::RankProcess(asio::io_context& io, Events events, ChildProcess child)
    : io_(io), events_(std::move(events)), child_(std::move(child)), closed_(io) {}

std::shared_ptr<RankProcess> RankProcess::start(
    asio::io_context& io, const std::vector<std::string>& argv,
    const std::map<std::string, std::string>& environment, Events events) {
  const PipeEnds out = make_pipe();
  const PipeEnds err = make_pipe();
  const auto out_pipe = std::make_shared<Pipe>(io, out.read);
  const auto err_pipe = std::make_shared<Pipe>(io, err.read);
  const auto close_write_ends = [&] {
    ::close(out.write);
    ::close(err.write);
  };
  std::shared_ptr<RankProcess> self;
  try {
    self.reset(new RankProcess(io, std::move(events),
                               ChildProcess(argv, environment, {out.write, err.write})));
  } catch (const Error&) {
    close_write_ends();
    throw;
  }
  close_write_ends();
  self->stdout_ = out_pipe;
  self->stderr_ = err_pipe;
  spawn(io, read_lines(self, out_pipe, self->events_.on_stdout));
  spawn(io, read_lines(self, err_pipe, self->events_.on_stderr));
  spawn(io, watch_end(self));
  return self;
}

Task<> RankProcess::read_lines(std::shared_ptr<RankProcess> self, std::shared_ptr<Pipe> pipe,
                               std::function<void(const std::string&)> on_line) {
  std::string text;
  std::array<char, 4096> piece;
  ErrorCode error;
  for (;;) {
    const size_t n = co_await pipe->stream.async_read_some(asio::buffer(piece), into(error));
    if (error) break;
    text.append(piece.data(), n);
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      on_line(text.substr(begin, end - begin));
    }
    text.erase(0, begin);
    if (text.size() > kMaxLineBytes) text.resize(kMaxLineBytes);
  }
  if (!text.empty()) on_line(text);
  --self->n_open_pipes_;
  self->closed_.notify();
}

// Both pipes close when the process ends, whatever ended it; its exit code is there a moment later.
Task<> RankProcess::watch_end(std::shared_ptr<RankProcess> self) {
  while (self->n_open_pipes_ > 0) co_await self->closed_.wait();
  while (self->child_.running()) co_await sleep_for(self->io_, std::chrono::milliseconds(1));
  self->exit_code_ = self->child_.wait();
  if (self->events_.on_exit) self->events_.on_exit(*self->exit_code_);
}

void RankProcess::end() {
  events_.on_exit = nullptr;
  child_.send_signal(SIGKILL);
}

}  // namespace lockstep::serve
