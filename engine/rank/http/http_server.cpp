#include "engine/rank/http/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>

#include "engine/base/error.h"
#include "engine/rank/http/connection.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// A Connection as cpp-httplib sees it.
class HttpStream final : public httplib::Stream {
 public:
  explicit HttpStream(Connection& connection) : connection_(connection) {}

  bool is_readable() const override { return connection_.has_input(); }
  bool is_writable() const override { return !connection_.peer_closed(); }
  ssize_t read(char* data, size_t size) override { return connection_.read(data, size); }
  ssize_t write(const char* data, size_t size) override { return connection_.write(data, size); }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();
    port = 0;
  }
  socket_t socket() const override { return connection_.fd(); }

 private:
  Connection& connection_;
};

// A thread for each connection, up to a number; the accepting thread waits for a free one.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(size_t limit) : limit_(limit) {}

  void enqueue(std::function<void()> task) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return n_running_ < limit_; });
    ++n_running_;
    std::thread([this, task = std::move(task)] {
      task();
      const std::lock_guard done(mutex_);
      --n_running_;
      changed_.notify_all();
    }).detach();
  }

  void shutdown() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return n_running_ == 0; });
  }

 private:
  const size_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t n_running_ = 0;
};

constexpr size_t kMaxPathLength = 256;

// The connection that this thread serves.
thread_local Connection* this_connection = nullptr;

}  // namespace

class HttpServer::Implementation final : public httplib::Server {
 public:
  Implementation(const HttpLimits& limits, HttpServer::Handler handler)
      : limits_(limits), handler_(std::move(handler)) {
    new_task_queue = [this] { return new ConnectionThreads(limits_.max_connections); };
    set_payload_max_length(limits_.max_body_bytes);
    set_tcp_nodelay(true);
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      const bool bodiless = request.method == "GET" || request.method == "HEAD";
      const bool routable = request.method == "POST" && request.path.size() <= kMaxPathLength;
      if (routable) return HandlerResponse::Unhandled;
      if (!bodiless) this_connection->end_after_this();
      answer(request, "", bodiless ? 0 : 404, response);
      return HandlerResponse::Handled;
    });
    Post("/.*", [this](const httplib::Request& request, httplib::Response& response,
                       const httplib::ContentReader& reader) { post(request, response, reader); });
    set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      const bool flooded = this_connection != nullptr && this_connection->header_too_large();
      answer(request, "", flooded ? 431 : response.status, response);
    });
  }

  // The library listens with room for 5: a burst of clients would wait for seconds.
  void listen_for_many() { ::listen(svr_sock_, static_cast<int>(limits_.max_connections)); }

  void end() {
    stopping_ = true;
    stop();
  }

 private:
  void post(const httplib::Request& request, httplib::Response& response,
            const httplib::ContentReader& reader) {
    std::string body;
    bool too_large = false;
    const bool complete = reader([&](const char* data, size_t size) {
      too_large = body.size() + size > limits_.max_body_bytes;
      if (!too_large) body.append(data, size);
      return !too_large;
    });
    if (complete) return answer(request, std::move(body), 0, response);
    this_connection->end_after_this();
    // A length beyond the limit has set 413 itself.
    if (too_large) response.status = 413;
    if (response.status < 400) response.status = 400;
  }

  void answer(const httplib::Request& from, std::string body, int status,
              httplib::Response& response) const {
    HttpRequest request;
    request.method = from.method;
    request.path = from.path;
    request.body = std::move(body);
    request.header = [&from](const char* name) -> std::optional<std::string> {
      if (!from.has_header(name)) return std::nullopt;
      return from.get_header_value(name);
    };
    Connection* connection = this_connection;
    request.client_gone = [connection] { return connection->peer_closed(); };
    HttpReply reply = handler_(request, status);
    response.status = reply.status;
    if (!reply.stream) {
      response.set_content(reply.body, reply.content_type);
      return;
    }
    response.set_chunked_content_provider(
        reply.content_type, [stream = std::move(reply.stream)](size_t, httplib::DataSink& sink) {
          const bool proper = stream([&sink](std::string_view piece) {
            return piece.empty() || sink.write(piece.data(), piece.size());
          });
          if (proper) sink.done();
          return proper;
        });
  }

  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, limits_);
    HttpStream stream(connection);
    this_connection = &connection;
    constexpr int kRequestsOfAConnection = 1000;
    for (int left = kRequestsOfAConnection; left > 0 && connection.wait_for_request(stopping_);
         --left) {
      bool closed = false;
      connection.begin_request();
      if (!process_request(stream, left == 1, closed, {}) || closed) break;
      if (connection.ends() || connection.header_too_large()) break;
    }
    this_connection = nullptr;
    connection.close();
    return true;
  }

  std::atomic<bool> stopping_{false};
  const HttpLimits limits_;
  const HttpServer::Handler handler_;
};

HttpServer::HttpServer(const HttpLimits& limits, Handler handler)
    : implementation_(std::make_unique<Implementation>(limits, std::move(handler))) {}

HttpServer::~HttpServer() = default;

int HttpServer::bind(const std::string& host, int port) {
  const bool any = port == 0;
  const int bound = any ? implementation_->bind_to_any_port(host)
                        : (implementation_->bind_to_port(host, port) ? port : -1);
  if (bound >= 0) implementation_->listen_for_many();
  if (bound < 0) fail("cannot listen on {} port {}; is another server there?", host, port);
  return bound;
}

void HttpServer::serve() {
  implementation_->listen_after_bind();
}

void HttpServer::stop() {
  implementation_->end();
}

}  // namespace lockstep
