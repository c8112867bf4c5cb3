// What clients can do to the HTTP server: too much, too slowly, nonsense, or leave.
#include "engine/rank/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "engine/base/error.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

class Server {
 public:
  explicit Server(HttpLimits limits)
      : server_(limits,
                [this](const HttpRequest& request, int status) { return answer(request, status); }),
        port_(server_.bind("127.0.0.1", 0)),
        thread_([this] { server_.serve(); }) {
    while (talk("GET /up HTTP/1.1\r\nConnection: close\r\n\r\n").empty()) {
      std::this_thread::sleep_for(1ms);
    }
  }
  ~Server() {
    server_.stop();
    thread_.join();
  }

  int connect() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  static void send(int fd, const std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = ::send(fd, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return;
      done += static_cast<size_t>(n);
    }
  }

  static std::string receive(int fd) {
    std::string all;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      all.append(buffer, static_cast<size_t>(n));
    }
    ::close(fd);
    return all;
  }

  // Sends, and reads until the server closes.
  std::string talk(const std::string& text) const {
    const int fd = connect();
    send(fd, text);
    return receive(fd);
  }

  std::atomic<int> n_handled{0};
  std::atomic<bool> saw_client_go{false};

 private:
  HttpReply answer(const HttpRequest& request, int status) {
    ++n_handled;
    if (status != 0) return {status, "text/plain", "found " + std::to_string(status), {}};
    if (request.path == "/wait") {
      for (int i = 0; i < 5000 && !request.client_gone(); ++i) std::this_thread::sleep_for(1ms);
      saw_client_go = request.client_gone();
    }
    HttpReply reply{
        200, "text/plain", request.method + " " + std::to_string(request.body.size()), {}};
    if (request.path == "/stream" || request.path == "/broken") {
      const bool proper = request.path == "/stream";
      reply.stream = [proper](const HttpReply::Writer& write) {
        return write("one") && write("two") && proper;
      };
    }
    return reply;
  }

  HttpServer server_;
  int port_;
  std::thread thread_;
};

std::string post(const std::string& path, const std::string& body, const std::string& more = "") {
  return fmt::format("POST {} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n{}\r\n{}",
                     path, body.size(), more, body);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(HttpServer, TakesBodiesUpToTheLimit) {
  HttpLimits limits;
  limits.max_body_bytes = 10000;
  Server server(limits);
  EXPECT_TRUE(has(server.talk(post("/a", std::string(10000, 'x'))), "POST 10000"));
  EXPECT_TRUE(has(server.talk(post("/a", std::string(10001, 'x'))), "HTTP/1.1 413"));
  EXPECT_TRUE(
      has(server.talk(post("/a", "x", "Content-Type: application/x-www-form-urlencoded\r\n")),
          "POST 1"));
}

TEST(HttpServer, AChunkedBodyEndsAtTheLimitToo) {
  HttpLimits limits;
  limits.max_body_bytes = 100;
  Server server(limits);
  std::string body;
  for (int i = 0; i < 20; ++i) body += "a\r\n0123456789\r\n";
  const std::string head =
      "POST /a HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_TRUE(has(server.talk(head + body + "0\r\n\r\n"), "HTTP/1.1 413"));
}

TEST(HttpServer, RefusesAFloodOfHeaders) {
  HttpLimits limits;
  limits.max_header_bytes = 8192;
  Server server(limits);
  std::string many = "GET /a HTTP/1.1\r\n";
  for (int i = 0; i < 2000; ++i) many += "X-Header-" + std::to_string(i) + ": value\r\n";
  EXPECT_TRUE(has(server.talk(many + "\r\n"), "HTTP/1.1 431"));
  const std::string wide = "GET /a HTTP/1.1\r\nX: " + std::string(100000, 'x') + "\r\n\r\n";
  EXPECT_TRUE(has(server.talk(wide), "HTTP/1.1 431"));
  EXPECT_TRUE(has(server.talk(post("/" + std::string(3000, 'p'), "x")), "HTTP/1.1 404"));
  EXPECT_TRUE(has(server.talk(post("/a", "x")), "POST 1")) << "the server must go on";
}

TEST(HttpServer, EndsASlowHeader) {
  HttpLimits limits;
  limits.header_deadline = 50ms;
  Server server(limits);
  const int fd = server.connect();
  Server::send(fd, "GET /a HTT");
  const std::string answer = Server::receive(fd);
  EXPECT_FALSE(has(answer, " 200 ")) << answer;
}

TEST(HttpServer, AnswersNonsenseAndGoesOn) {
  Server server(HttpLimits{});
  for (const char* text : {"\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02", "GET /a HTTP/9.9\r\n\r\n",
                           "DELETE /a HTTP/1.1\r\nContent-Length: 5\r\n\r\n12345",
                           "POST /a HTTP/1.1\r\nContent-Length: -5\r\n\r\n"}) {
    const int fd = server.connect();
    Server::send(fd, text);
    ::shutdown(fd, SHUT_WR);
    EXPECT_FALSE(has(Server::receive(fd), " 200 ")) << text;
  }
  EXPECT_TRUE(has(server.talk(post("/a", "x")), "POST 1"));
}

TEST(HttpServer, AStreamEndsProperlyOrNot) {
  Server server(HttpLimits{});
  const std::string proper = server.talk(post("/stream", ""));
  EXPECT_TRUE(has(proper, "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")) << proper;
  const std::string broken = server.talk(post("/broken", ""));
  EXPECT_TRUE(has(broken, "two")) << broken;
  EXPECT_FALSE(has(broken, "0\r\n\r\n")) << broken;
}

TEST(HttpServer, SeesAClientGo) {
  Server server(HttpLimits{});
  const int fd = server.connect();
  Server::send(fd, post("/wait", "x"));
  ::close(fd);
  for (int i = 0; i < 5000 && !server.saw_client_go; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(server.saw_client_go);
}

TEST(HttpServer, ServesManyAtOnceAndLeavesNoDescriptorOpen) {
  Server server(HttpLimits{});
  const auto n_open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = n_open();
  std::vector<int> sockets;
  for (int i = 0; i < 200; ++i) sockets.push_back(server.connect());
  for (const int fd : sockets) Server::send(fd, post("/a", "x"));
  for (const int fd : sockets) EXPECT_TRUE(has(Server::receive(fd), "POST 1"));
  for (int i = 0; i < 5000 && n_open() > before; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_LE(n_open(), before);
}

}  // namespace
}  // namespace lockstep
