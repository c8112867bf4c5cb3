#include "engine/serve/rank_http.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>

namespace lockstep::serve {
namespace {

namespace http = boost::beast::http;

constexpr uint32_t kHeaderLimitBytes = 64 << 10;
constexpr size_t kReadBytes = 16 << 10;

Tcp::endpoint endpoint_of(const RankEndpoints& endpoints, int rank) {
  return {asio::ip::address_v4::loopback(), endpoints.ports.at(static_cast<size_t>(rank))};
}

std::string head_text(const ClientRequest& request, const RankEndpoints& endpoints,
                      const HeaderList& more) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                                 request.method, request.target);
  if (request.method != "GET") text += fmt::format("Content-Length: {}\r\n", request.body.size());
  if (!endpoints.key.empty()) text += fmt::format("Lockstep-Key: {}\r\n", endpoints.key);
  for (const HeaderList* headers : {&request.headers, &more}) {
    for (const auto& [name, value] : *headers) text += fmt::format("{}: {}\r\n", name, value);
  }
  return text + "\r\n";
}

Task<bool> write_request(Tcp::socket& socket, const std::string& head, const std::string& body) {
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(body)};
  ErrorCode error;
  co_await asio::async_write(socket, parts, into(error));
  co_return !error;
}

// Headers that belong to one connection, not to the answer.
bool belongs_to_connection(const std::string& name) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

template <typename Fields>
AnswerHead answer_head(const Fields& message) {
  AnswerHead head;
  head.status = message.result_int();
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (!belongs_to_connection(name)) head.headers.emplace_back(name, std::string(field.value()));
  }
  return head;
}

// Appends to `bytes` what of a body lies in `buffer`, and takes it from there.
ErrorCode take_parsed(http::response_parser<http::buffer_body>& parser,
                      boost::beast::flat_buffer& buffer, std::string& bytes) {
  std::array<char, kReadBytes> piece;
  while (buffer.size() > 0 && !parser.is_done()) {
    auto& body = parser.get().body();
    body.data = piece.data();
    body.size = piece.size();
    body.more = true;
    ErrorCode error;
    buffer.consume(parser.put(buffer.data(), error));
    bytes.append(piece.data(), piece.size() - body.size);
    if (error == http::error::need_more) break;
    if (error && error != http::error::need_buffer) return error;
  }
  return {};
}

// The whole of a short call; the caller closes the socket at the deadline.
Task<> call(Tcp::socket& socket, Tcp::endpoint endpoint, const std::string& head,
            const std::string& body, std::optional<RankReply>& reply) {
  ErrorCode error;
  co_await socket.async_connect(endpoint, into(error));
  if (error) co_return;
  const bool written = co_await write_request(socket, head, body);
  if (!written) co_return;
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.header_limit(kHeaderLimitBytes);
  parser.body_limit(uint64_t{64} << 20);
  co_await http::async_read(socket, buffer, parser, into(error));
  if (error) co_return;
  reply.emplace();
  reply->head = answer_head(parser.get());
  reply->body = std::move(parser.get().body());
}

}  // namespace

Task<std::optional<RankReply>> call_rank(asio::io_context& io, const RankEndpoints& endpoints,
                                         int rank, ClientRequest request,
                                         Clock::duration deadline) {
  const auto socket = std::make_shared<Tcp::socket>(io);
  asio::steady_timer timer(io, deadline);
  timer.async_wait([socket](ErrorCode error) {
    ErrorCode ignored;
    if (!error) socket->close(ignored);
  });
  const std::string head = head_text(request, endpoints, {});
  std::optional<RankReply> reply;
  co_await call(*socket, endpoint_of(endpoints, rank), head, request.body, reply);
  co_return reply;
}

ClientRequest get_request(std::string target) {
  return {"GET", std::move(target), {}, {}};
}

ClientRequest sequence_request(std::string target, uint64_t sequence) {
  return {"POST",
          std::move(target),
          {{"Content-Type", "application/json"}},
          fmt::format("{{\"sequence\":{}}}", sequence)};
}

Task<bool> RankLink::connect(const RankEndpoints& endpoints) {
  ErrorCode error;
  co_await socket_.async_connect(endpoint_of(endpoints, rank_), into(error));
  if (error) co_return false;
  socket_.set_option(Tcp::no_delay(true), error);
  co_return true;
}

bool RankLink::is_open() {
  char byte = 0;
  const ssize_t n = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

Task<bool> RankLink::send(const RankEndpoints& endpoints, const Exchange& exchange) {
  const HeaderList numbers = {
      {"Lockstep-Sequence", std::to_string(exchange.sequence)},
      {"Lockstep-Seed", std::to_string(exchange.seed)},
      {"Lockstep-Unix-Time", std::to_string(exchange.unix_time_s)},
      {"Lockstep-Request-Id", exchange.id},
  };
  const std::string head = head_text(exchange.request, endpoints, numbers);
  const bool sent = co_await write_request(socket_, head, exchange.request.body);
  co_return sent;
}

Task<RankLink::End> RankLink::receive(Exchange& exchange, const std::function<void()>& on_bytes) {
  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.header_limit(kHeaderLimitBytes);
  parser.body_limit(uint64_t{1} << 50);  // none would refuse every length
  ErrorCode error;
  co_await http::async_read_header(socket_, buffer, parser, into(error));
  if (error) co_return End::lost;
  on_bytes();
  if (!exchange.take_head(rank_, answer_head(parser.get()))) co_return End::differs;
  std::string bytes;
  for (;;) {
    bytes.clear();
    const ErrorCode broken = take_parsed(parser, buffer, bytes);
    if (!bytes.empty()) {
      on_bytes();
      if (!exchange.take_body(rank_, bytes)) co_return End::differs;
    }
    if (broken) co_return End::lost;
    if (parser.is_done()) break;
    // Not Beast's read: that takes several turns of the event loop for one chunk.
    const size_t n = co_await socket_.async_read_some(buffer.prepare(kReadBytes), into(error));
    buffer.commit(n);
    if (error == asio::error::eof) parser.put_eof(error);
    if (error) co_return End::lost;
  }
  co_return exchange.take_end(rank_) ? End::complete : End::differs;
}

void RankLink::close() {
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace lockstep::serve
