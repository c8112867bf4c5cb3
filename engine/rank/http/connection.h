// One client's socket: buffered reads with deadlines and a bound on headers, writes that wait for
// a slow reader only so long.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <vector>

#include "engine/rank/http/http_server.h"

namespace lockstep {

class Connection {
 public:
  // Owns `fd` until close().
  Connection(int fd, const HttpLimits& limits);

  int fd() const { return fd_; }

  // Waits for the first byte of a request; false when the client leaves or stays silent, or once
  // `stopping`.
  bool wait_for_request(const std::atomic<bool>& stopping);
  // The next bytes are a request line and headers.
  void begin_request();

  // As recv; -1 also when a deadline or the bound on headers is passed.
  ssize_t read(char* data, size_t size);
  // All of it, or -1.
  ssize_t write(const char* data, size_t size);

  bool has_input() const { return at_ < buffer_.size(); }
  bool header_too_large() const { return header_too_large_; }
  // No further request on this connection: part of this one is unread.
  void end_after_this() { ends_ = true; }
  bool ends() const { return ends_; }
  // The client has closed its side and nothing of it is left to read.
  bool peer_closed() const;

  // Takes what the client still sends for a moment, so that it can read the answer, and closes.
  void close();

 private:
  bool fill();

  int fd_;
  const HttpLimits& limits_;
  std::vector<char> buffer_;
  size_t at_ = 0;
  bool in_header_ = false;
  bool header_too_large_ = false;
  bool ends_ = false;
  size_t n_header_bytes_ = 0;
  unsigned line_ends_ = 0;  // of "\r\n\r\n", how much was last read
  std::chrono::steady_clock::time_point header_deadline_;
};

}  // namespace lockstep
