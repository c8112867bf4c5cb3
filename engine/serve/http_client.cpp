#include "engine/serve/http_client.h"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "engine/base/error.h"

namespace lockstep::serve {
namespace {

using Clock = std::chrono::steady_clock;

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

int connect_to(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  if (const int code = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found); code != 0) {
    fail("{}: {}", host, ::gai_strerror(code));
  }
  int fd = -1;
  for (const addrinfo* at = found; at != nullptr && fd < 0; at = at->ai_next) {
    fd = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd >= 0 && ::connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
      ::close(fd);
      fd = -1;
    }
  }
  ::freeaddrinfo(found);
  if (fd < 0) fail("{}:{}: {}", host, port, std::strerror(errno));
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

// Decodes chunks from `text` at `at`, which moves behind those that are whole. True at the last.
bool take_chunks(const std::string& text, size_t& at, std::string& body) {
  for (;;) {
    const size_t line_end = text.find("\r\n", at);
    if (line_end == std::string::npos) return false;
    size_t size = 0;
    const char* first = text.data() + at;
    if (std::from_chars(first, text.data() + line_end, size, 16).ptr == first) return false;
    if (text.size() < line_end + 2 + size + 2) return false;
    body.append(text, line_end + 2, size);
    at = line_end + 2 + size + 2;
    if (size == 0) return true;
  }
}

}  // namespace

std::string HttpAnswer::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

std::vector<std::string> HttpAnswer::events() const {
  std::vector<std::string> data;
  for (size_t at = 0; at < body.size();) {
    const size_t end = std::min(body.find("\n\n", at), body.size());
    const std::string event = body.substr(at, end - at);
    const size_t begin = event.find("data: ");
    if (begin != std::string::npos) data.push_back(event.substr(begin + 6));
    at = end + 2;
  }
  return data;
}

HttpClient::HttpClient(const std::string& host, uint16_t port) : fd_(connect_to(host, port)) {}

HttpClient::~HttpClient() {
  close();
}

void HttpClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  closed_ = true;
}

std::string HttpClient::request_text(const std::string& method, const std::string& target,
                                     const std::string& body, const Headers& headers) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n", method, target);
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  if (method != "GET") {
    text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  return text + "\r\n" + body;
}

bool HttpClient::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool HttpClient::read_more(Clock::time_point deadline) {
  if (closed_) return false;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() < 0) return false;
    pollfd wait{fd_, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(left.count()) + 1);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    std::array<char, 64 << 10> piece;
    const ssize_t n = ::recv(fd_, piece.data(), piece.size(), 0);
    if (n <= 0) {
      closed_ = true;
      return false;
    }
    text_.append(piece.data(), static_cast<size_t>(n));
    return true;
  }
}

HttpAnswer HttpClient::parse(bool consume) {
  HttpAnswer answer;
  const size_t head_end = text_.find("\r\n\r\n");
  if (head_end == std::string::npos) return answer;
  size_t at = text_.find("\r\n") + 2;
  answer.status = std::atoi(text_.c_str() + std::min<size_t>(9, text_.size()));
  while (at < head_end + 2) {
    const size_t end = text_.find("\r\n", at);
    const size_t colon = std::min(text_.find(':', at), end);
    size_t value = std::min(colon + 1, end);
    while (value < end && text_[value] == ' ') ++value;
    answer.headers.emplace_back(lower(text_.substr(at, colon - at)),
                                text_.substr(value, end - value));
    at = end + 2;
  }
  at = head_end + 4;
  if (answer.status == 100) {  // an interim answer: the real one follows
    text_.erase(0, at);
    return parse(consume);
  }
  const std::string length = answer.header("content-length");
  if (answer.header("transfer-encoding") == "chunked") {
    answer.complete = take_chunks(text_, at, answer.body);
  } else if (!length.empty()) {
    const size_t n = std::strtoull(length.c_str(), nullptr, 10);
    answer.body = text_.substr(at, n);
    answer.complete = answer.body.size() == n;
    at += answer.body.size();
  } else {
    answer.body = text_.substr(at);
    answer.complete = closed_;
    at = text_.size();
  }
  if (consume) text_.erase(0, at);
  return answer;
}

HttpAnswer HttpClient::receive(std::chrono::milliseconds time) {
  const Clock::time_point deadline = Clock::now() + time;
  // Looking at the whole text after each piece would be slow for large answers: a rare case.
  while (!parse(false).complete && read_more(deadline)) {
  }
  return parse(true);
}

bool HttpClient::wait_for(std::string_view text, std::chrono::milliseconds time) {
  const Clock::time_point deadline = Clock::now() + time;
  for (;;) {
    const HttpAnswer answer = parse(false);
    if (answer.body.find(text) != std::string::npos) return true;
    if (answer.complete || !read_more(deadline)) return false;
  }
}

bool HttpClient::wait_for_close(std::chrono::milliseconds time) {
  const Clock::time_point deadline = Clock::now() + time;
  while (read_more(deadline)) {
  }
  return closed_;
}

HttpAnswer HttpClient::request(const std::string& method, const std::string& target,
                               const std::string& body, const Headers& headers) {
  send(request_text(method, target, body, headers));
  return receive();
}

void HttpClient::shrink_receive_buffer() {
  const int size = 4096;
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

HttpUrl parse_http_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) fail("{}: wants http://HOST[:PORT][/PATH]", url);
  HttpUrl parts;
  std::string rest = url.substr(kScheme.size());
  const size_t slash = rest.find('/');
  if (slash != std::string::npos) parts.path = rest.substr(slash);
  while (parts.path.ends_with('/')) parts.path.pop_back();
  rest = rest.substr(0, slash);
  const size_t colon = rest.rfind(':');
  parts.host = rest.substr(0, colon);
  if (colon != std::string::npos) {
    const std::string digits = rest.substr(colon + 1);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), parts.port);
    if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
      fail("{}: {} is no port", url, digits);
    }
  }
  if (parts.host.empty()) fail("{}: names no host", url);
  return parts;
}

}  // namespace lockstep::serve
