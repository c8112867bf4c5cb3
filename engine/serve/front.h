// The clients' side: accepts connections, checks what arrives, and relays answers.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/serve/api_keys.h"
#include "engine/serve/asio.h"
#include "engine/serve/dispatcher.h"

namespace lockstep::serve {

struct FrontOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::vector<std::string> allowed_hosts;  // names in Host besides those of loopback
  size_t max_connections = 500;
  size_t max_header_bytes = 32 << 10;
  uint64_t max_body_bytes = uint64_t{32} << 20;
  uint64_t body_budget_bytes = uint64_t{512} << 20;  // of all requests that are here
  Clock::duration header_timeout = std::chrono::seconds(10);
  Clock::duration idle_timeout = std::chrono::seconds(75);    // between requests
  Clock::duration reader_timeout = std::chrono::seconds(30);  // for a client that reads nothing
};

// Pages that the proxy answers itself.
struct Page {
  bool needs_key = true;
  std::function<Task<RankReply>(std::string target)> answer;
};

struct FrontCounts {
  uint64_t connections = 0;  // accepted
  uint64_t turned_away = 0;  // over max_connections
  uint64_t requests = 0;     // with a whole header
  uint64_t bad_requests = 0;
  uint64_t answer_bytes = 0;  // bodies, as sent
};

class Session;

class Front {
 public:
  Front(asio::io_context& io, const FrontOptions& options, const ApiKeys& keys,
        Dispatcher& dispatcher, std::map<std::string, Page> pages);
  ~Front();

  // Listens; returns the port. Throws Error when the address cannot be used.
  uint16_t open();
  // Takes no more connections and ends those without a request.
  void close();

  size_t n_sessions() const { return sessions_.size(); }
  const FrontCounts& counts() const { return counts_; }

 private:
  friend class Session;

  Task<> accept();
  Task<> turn_away(Tcp::socket socket);
  Task<> serve(std::shared_ptr<Session> session);

  asio::io_context& io_;
  const FrontOptions options_;
  const ApiKeys& keys_;
  Dispatcher& dispatcher_;
  const std::map<std::string, Page> pages_;
  Tcp::acceptor acceptor_;
  std::list<std::shared_ptr<Session>> sessions_;
  uint64_t body_bytes_ = 0;  // promised or here
  size_t n_turning_away_ = 0;
  bool closing_ = false;
  FrontCounts counts_;
};

}  // namespace lockstep::serve
