// A small blocking HTTP/1.1 client over plain TCP that can leave at any moment and sees how an
// answer arrives: for scenarios, benchmarks and tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::serve {

// After this a wait counts as a hang. Programs under a sanitizer are many times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::chrono::seconds kPatience{600};
#else
inline constexpr std::chrono::seconds kPatience{60};
#endif

struct HttpAnswer {
  int status = 0;                                            // 0: no answer at all
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  bool complete = false;  // ended as its framing says

  std::string header(std::string_view name) const;
  // The data of each server-sent event, in order.
  std::vector<std::string> events() const;
};

class HttpClient {
 public:
  // Connects. Throws Error when nobody listens there.
  HttpClient(const std::string& host, uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  using Headers = std::vector<std::pair<std::string, std::string>>;
  static std::string request_text(const std::string& method, const std::string& target,
                                  const std::string& body, const Headers& headers = {});

  // False when the peer has closed.
  bool send(std::string_view text);

  // The next answer in full, or what had arrived when the connection ended or the time was over.
  HttpAnswer receive(std::chrono::milliseconds time = kPatience);
  // Until the body holds `text` (true), or the answer or the time ends. What arrived is kept for
  // receive().
  bool wait_for(std::string_view text, std::chrono::milliseconds time = kPatience);
  // Until the peer closes (true) or the time ends.
  bool wait_for_close(std::chrono::milliseconds time = kPatience);

  HttpAnswer request(const std::string& method, const std::string& target,
                     const std::string& body = {}, const Headers& headers = {});

  void shrink_receive_buffer();  // so that a reader that stalls is noticed soon
  void close();
  int fd() const { return fd_; }

 private:
  // Waits for more bytes. False at the end of the connection or of the time.
  bool read_more(std::chrono::steady_clock::time_point deadline);
  // Parses what has arrived; `text_` keeps what lies behind a complete answer.
  HttpAnswer parse(bool consume);

  int fd_ = -1;
  bool closed_ = false;
  std::string text_;
};

struct HttpUrl {
  std::string host;
  uint16_t port = 80;
  std::string path;  // without a '/' at its end; may be empty
};

// Throws Error for anything but http://HOST[:PORT][/PATH].
HttpUrl parse_http_url(const std::string& url);

}  // namespace lockstep::serve
