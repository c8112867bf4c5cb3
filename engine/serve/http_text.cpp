#include "engine/serve/http_text.h"

#include <fmt/core.h>

namespace lockstep::serve {

namespace {

std::string_view reason_of(unsigned status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return status < 400 ? "OK" : "Error";
  }
}

}  // namespace

std::string response_head(const AnswerHead& head, const Connection& connection,
                          std::optional<size_t> n_bytes) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", head.status, reason_of(head.status));
  for (const auto& [name, value] : head.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (n_bytes) {
    text += fmt::format("content-length: {}\r\n", *n_bytes);
  } else if (!connection.http_1_0) {
    text += "transfer-encoding: chunked\r\n";
  }
  text += connection.keep_alive ? "connection: keep-alive\r\n" : "connection: close\r\n";
  return text + "\r\n";
}

std::string chunk(std::string_view bytes, const Connection& connection) {
  if (bytes.empty() || connection.http_1_0) return std::string(bytes);
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

std::string last_chunk(const Connection& connection) {
  return connection.http_1_0 ? "" : "0\r\n\r\n";
}

}  // namespace lockstep::serve
