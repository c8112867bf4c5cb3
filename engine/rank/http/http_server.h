// The HTTP/1.1 server of a rank (cpp-httplib behind it): a thread a connection, limits on what a
// client may send, and a way to see that a client has left.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

struct HttpLimits {
  size_t max_body_bytes = size_t{64} << 20;
  size_t max_header_bytes = size_t{64} << 10;  // request line and headers together
  size_t max_connections = 512;                // more wait to be accepted
  std::chrono::milliseconds header_deadline = std::chrono::seconds(10);
  std::chrono::milliseconds idle_read = std::chrono::seconds(30);   // between bytes of a body
  std::chrono::milliseconds idle_write = std::chrono::seconds(60);  // a reader that takes nothing
};

struct HttpRequest {
  std::string method;
  std::string path;
  std::string body;
  std::function<std::optional<std::string>(const char* name)> header;
  // True once the client has closed its side.
  std::function<bool()> client_gone;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  // Instead of `body`: writes the answer piece by piece, each piece one chunk. `write` returns
  // false when the client is gone. Returns false to end the answer without a proper ending.
  using Writer = std::function<bool(std::string_view piece)>;
  std::function<bool(const Writer& write)> stream;
};

class HttpServer {
 public:
  // Must not throw. Called from many threads at once; also with status 4xx that the server found
  // itself (`status` is then not 0), to word the answer.
  using Handler = std::function<HttpReply(const HttpRequest& request, int status)>;

  HttpServer(const HttpLimits& limits, Handler handler);
  ~HttpServer();

  // Binds and returns the port; `port` 0 takes a free one. Throws Error.
  int bind(const std::string& host, int port);
  // Serves until stop(); returns when every connection has ended.
  void serve();
  // Safe from other threads.
  void stop();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lockstep
