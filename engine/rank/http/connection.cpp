#include "engine/rank/http/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kReadBytes = 16384;

// True when `events` came within `limit`.
bool wait_for(int fd, short events, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    pollfd wanted{fd, events, 0};
    const int n = ::poll(&wanted, 1, static_cast<int>(std::max<int64_t>(0, left)));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Connection::Connection(int fd, const HttpLimits& limits) : fd_(fd), limits_(limits) {}

bool Connection::wait_for_request(const std::atomic<bool>& stopping) {
  constexpr milliseconds kLookForStop{100};
  const auto deadline = Clock::now() + limits_.header_deadline;
  while (!has_input()) {
    if (stopping || Clock::now() > deadline) return false;
    if (wait_for(fd_, POLLIN, kLookForStop)) return fill();
  }
  return true;
}

void Connection::begin_request() {
  in_header_ = true;
  header_too_large_ = false;
  n_header_bytes_ = 0;
  line_ends_ = 0;
  header_deadline_ = Clock::now() + limits_.header_deadline;
}

bool Connection::fill() {
  const auto left = in_header_
                        ? std::chrono::duration_cast<milliseconds>(header_deadline_ - Clock::now())
                        : limits_.idle_read;
  if (left.count() <= 0 || !wait_for(fd_, POLLIN, left)) return false;
  buffer_.resize(kReadBytes);
  at_ = 0;
  ssize_t n = -1;
  do {
    n = ::recv(fd_, buffer_.data(), buffer_.size(), 0);
  } while (n < 0 && errno == EINTR);
  buffer_.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
  return n > 0;
}

ssize_t Connection::read(char* data, size_t size) {
  if (!has_input() && !fill()) return -1;
  const size_t n = std::min(in_header_ ? size_t{1} : size, buffer_.size() - at_);
  std::memcpy(data, buffer_.data() + at_, n);
  at_ += n;
  if (!in_header_ || n == 0) return static_cast<ssize_t>(n);
  const bool continues = data[0] == "\r\n\r\n"[line_ends_];
  line_ends_ = continues ? line_ends_ + 1 : (data[0] == '\r' ? 1 : 0);
  in_header_ = line_ends_ < 4;
  header_too_large_ = ++n_header_bytes_ > limits_.max_header_bytes;
  return header_too_large_ ? -1 : 1;
}

ssize_t Connection::write(const char* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::send(fd_, data + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(fd_, POLLOUT, limits_.idle_write)) return -1;
    } else if (n < 0 && errno != EINTR) {
      return -1;
    }
  }
  return static_cast<ssize_t>(done);
}

bool Connection::peer_closed() const {
  if (has_input()) return false;
  char byte = 0;
  const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void Connection::close() {
  constexpr milliseconds kLinger{200};
  constexpr size_t kLingerBytes = size_t{1} << 20;
  ::shutdown(fd_, SHUT_WR);
  const auto deadline = Clock::now() + kLinger;
  char scrap[kReadBytes];
  for (size_t n_taken = 0; n_taken < kLingerBytes && Clock::now() < deadline;) {
    if (!wait_for(fd_, POLLIN, kLinger)) break;
    const ssize_t n = ::recv(fd_, scrap, sizeof(scrap), MSG_DONTWAIT);
    if (n <= 0) break;
    n_taken += static_cast<size_t>(n);
  }
  ::close(fd_);
}

}  // namespace lockstep
