// One connection of a client: its requests one after the other.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>

#include "engine/serve/asio.h"
#include "engine/serve/front.h"
#include "engine/serve/http_text.h"

namespace lockstep::serve {

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Front& front, Tcp::socket socket);
  ~Session();

  Task<> run();
  bool idle() const { return idle_; }
  void close();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  Task<bool> read_header(Parser& parser);
  Task<bool> read_body(Parser& parser);
  Task<bool> handle(Parser& parser);
  void note_request_line(const Parser& parser);
  std::optional<Refusal> objection(const Parser& parser) const;
  std::optional<Refusal> misfit(const Parser& parser) const;
  bool has_key(const Parser& parser) const;
  bool comes_from_here(const Parser& parser) const;
  ClientRequest client_request(Parser& parser) const;

  Task<bool> refuse(const Refusal& refusal);
  Task<bool> refuse_and_close(Refusal refusal);
  Task<bool> answer_page(const Page& page);
  Task<bool> answer_from_rank(ClientRequest request);
  Task<bool> send_reply(const RankReply& reply);
  Task<bool> generate(ClientRequest request);
  Task<bool> relay(std::shared_ptr<Exchange> exchange);
  bool relay_at_once(Exchange& exchange);
  std::string body_text(const std::string& bytes);
  Task<bool> relay_step(Exchange& exchange, bool last);
  Task<bool> finish_relay(Exchange& exchange);
  Task<> watch_client(std::shared_ptr<Exchange> exchange);
  void log_request(const Exchange& exchange) const;

  // Writes all of it, unless the client reads nothing for the whole reader time-out.
  Task<bool> write(std::string text);
  size_t write_now(std::string_view text);
  void arm(Clock::duration time);
  void disarm();

  Front& front_;
  Tcp::socket socket_;
  boost::beast::flat_buffer buffer_;
  asio::steady_timer deadline_;
  Connection connection_;
  std::string method_;
  std::string target_;
  std::string host_;
  std::string request_id_;
  uint64_t reserved_bytes_ = 0;
  bool idle_ = true;
  bool watching_ = false;
  Signal watch_ended_;
  unsigned status_sent_ = 0;
  // Of the answer that is relayed.
  bool head_sent_ = false;
  bool relay_waits_ = false;  // for more of the answer
  std::string unsent_;        // the rest of what the connection did not take at once
  uint64_t body_bytes_sent_ = 0;
};

}  // namespace lockstep::serve
