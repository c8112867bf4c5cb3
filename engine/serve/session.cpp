#include "engine/serve/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/read.hpp>

#include "engine/serve/error_body.h"
#include "engine/serve/routes.h"
#include "engine/serve/secrets.h"

namespace lockstep::serve {
namespace {

namespace http = boost::beast::http;

constexpr std::chrono::seconds kLinger{2};      // for more of a request that was refused
constexpr std::chrono::seconds kMaxLinger{30};  // for all of it
constexpr std::chrono::seconds kSideCallDeadline{30};
constexpr uint64_t kSlowestUploadBytesPerSecond = 64 << 10;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

// Names and paths of a client's own come back in messages.
std::string shortened(std::string_view text) {
  constexpr size_t kMax = 100;
  return text.size() <= kMax ? std::string(text) : std::string(text.substr(0, kMax)) + "...";
}

// Empty lines before a request are allowed (RFC 9112, 2.2).
void drop_empty_lines(boost::beast::flat_buffer& buffer) {
  const std::string_view text(static_cast<const char*>(buffer.data().data()), buffer.size());
  size_t n = 0;
  while (text.substr(n, 2) == "\r\n") n += 2;
  buffer.consume(n);
}

std::string_view view_of(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

// "[::1]:8000" -> "[::1]", "localhost:8000" -> "localhost".
std::string host_name(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool has_port = colon != std::string_view::npos && host.find(']', colon) == host.npos;
  return lower(has_port ? host.substr(0, colon) : host);
}

bool is_loopback_name(const std::string& name) {
  return name == "localhost" || name == "[::1]" || name.starts_with("127.");
}

// An id of the client's own for its request, when it can stand in logs and ids.
bool is_plain_id(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
  });
}

std::string fresh_request_id() {
  return "req-" + random_hex(12);
}

Refusal refusal_of(ErrorCode error, size_t max_header_bytes, uint64_t max_body_bytes) {
  if (error == http::error::header_limit) {
    return {431, "invalid_request_error",
            fmt::format("the request's header is larger than {} bytes", max_header_bytes)};
  }
  if (error == http::error::body_limit) {
    return {413, "request_too_large",
            fmt::format("the request's body is larger than {} bytes", max_body_bytes)};
  }
  return {400, "invalid_request_error", "this is no HTTP request: " + error.message()};
}

}  // namespace

Session::Session(Front& front, Tcp::socket socket)
    : front_(front), socket_(std::move(socket)), deadline_(front.io_), watch_ended_(front.io_) {}

Session::~Session() {
  front_.body_bytes_ -= reserved_bytes_;
}

void Session::close() {
  disarm();
  ErrorCode ignored;
  socket_.close(ignored);
}

void Session::arm(Clock::duration time) {
  deadline_.expires_after(time);
  deadline_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const std::shared_ptr<Session> self = weak.lock();
    if (error || !self || self->deadline_.expiry() > Clock::now()) return;
    ErrorCode ignored;
    self->socket_.close(ignored);
  });
}

void Session::disarm() {
  deadline_.expires_at(Clock::time_point::max());
}

Task<> Session::run() {
  for (bool go_on = true; go_on && !front_.closing_;) {
    Parser parser;
    parser.header_limit(static_cast<uint32_t>(front_.options_.max_header_bytes));
    parser.body_limit(front_.options_.max_body_bytes);
    const bool read = co_await read_header(parser);
    if (!read) co_return;
    idle_ = false;
    go_on = co_await handle(parser);
    idle_ = true;
    front_.body_bytes_ -= std::exchange(reserved_bytes_, 0);
  }
}

// False when there is none or it was refused.
Task<bool> Session::read_header(Parser& parser) {
  ErrorCode error;
  drop_empty_lines(buffer_);
  const bool first = status_sent_ == 0;
  arm(first ? front_.options_.header_timeout : front_.options_.idle_timeout);
  while (buffer_.size() == 0) {
    const size_t n = co_await socket_.async_read_some(buffer_.prepare(4096), into(error));
    if (error) co_return false;
    buffer_.commit(n);
    drop_empty_lines(buffer_);
  }
  arm(front_.options_.header_timeout);
  co_await http::async_read_header(socket_, buffer_, parser, into(error));
  disarm();
  if (!socket_.is_open() || error == http::error::end_of_stream) co_return false;
  if (error) {
    method_.clear();
    target_ = "/";
    request_id_ = fresh_request_id();
    co_await refuse_and_close(
        refusal_of(error, front_.options_.max_header_bytes, front_.options_.max_body_bytes));
    co_return false;
  }
  ++front_.counts_.requests;
  note_request_line(parser);
  co_return true;
}

void Session::note_request_line(const Parser& parser) {
  const auto& message = parser.get();
  connection_ = {message.keep_alive(), message.version() < 11};
  method_ = view_of(message.method_string());
  target_ = view_of(message.target());
  host_ = view_of(message[http::field::host]);
  // As clients write it that were told of a proxy: the name in it counts (RFC 9112, 3.2.2).
  constexpr std::string_view kScheme = "http://";
  if (target_.starts_with(kScheme)) {
    const size_t path = std::min(target_.find('/', kScheme.size()), target_.size());
    host_ = target_.substr(kScheme.size(), path - kScheme.size());
    target_ = path == target_.size() ? "/" : target_.substr(path);
  }
  const std::string_view wished = view_of(message["X-Request-Id"]);
  request_id_ = is_plain_id(wished) ? std::string(wished) : fresh_request_id();
}

bool Session::has_key(const Parser& parser) const {
  const auto& message = parser.get();
  std::string_view key = view_of(message["x-api-key"]);
  if (key.empty()) {
    constexpr std::string_view kBearer = "bearer ";
    key = view_of(message[http::field::authorization]);
    if (!lower(key.substr(0, kBearer.size())).starts_with(kBearer)) return false;
    key.remove_prefix(kBearer.size());
  }
  return front_.keys_.allow(key);
}

// Without keys, whoever reaches the port may use it. A browser on this machine reaches it on behalf
// of any web page: refuse pages of other origins, and names that were made to point here.
bool Session::comes_from_here(const Parser& parser) const {
  const auto& message = parser.get();
  const std::string name = host_name(host_);
  const auto& allowed = front_.options_.allowed_hosts;
  const bool known = host_.empty() || is_loopback_name(name) || name == front_.options_.host ||
                     std::find(allowed.begin(), allowed.end(), name) != allowed.end();
  if (!known) return false;
  const std::string_view origin = view_of(message[http::field::origin]);
  if (origin.empty()) return true;
  return origin == fmt::format("http://{}", host_) || origin == fmt::format("https://{}", host_);
}

// What the standard wants refused, or what would be read wrongly.
std::optional<Refusal> Session::misfit(const Parser& parser) const {
  const auto& message = parser.get();
  const size_t n_hosts = message.count(http::field::host);
  if (n_hosts > 1 || (n_hosts == 0 && !connection_.http_1_0)) {
    return Refusal{400, "invalid_request_error", "a request has one Host header"};
  }
  const std::string transfer = lower(view_of(message[http::field::transfer_encoding]));
  if (!transfer.empty() && transfer != "chunked") {
    return Refusal{
        501, "invalid_request_error",
        fmt::format("Transfer-Encoding {} is not known here; chunked is", shortened(transfer))};
  }
  const std::string content = lower(view_of(message[http::field::content_encoding]));
  if (!content.empty() && content != "identity") {
    return Refusal{415, "invalid_request_error",
                   fmt::format("Content-Encoding {} is not known here; send the body as it is",
                               shortened(content))};
  }
  return std::nullopt;
}

std::optional<Refusal> Session::objection(const Parser& parser) const {
  if (auto refusal = misfit(parser)) return refusal;
  const Route route = route_of(method_, target_);
  const auto page = front_.pages_.find(std::string(path_of(target_)));
  const bool needs_key = page == front_.pages_.end() || page->second.needs_key;
  if (front_.keys_.required() && needs_key && !has_key(parser)) {
    return Refusal{401, "authentication_error",
                   "wrong or missing API key: send Authorization: Bearer KEY or x-api-key: KEY"};
  }
  if (!front_.keys_.required() && !comes_from_here(parser)) {
    return Refusal{403, "permission_error",
                   "this server has no API key and answers only to its own address; start it with "
                   "--api-key-file or --allow-host"};
  }
  if (route == Route::wrong_method) {
    return Refusal{405, "invalid_request_error",
                   fmt::format("{} does not take {}", path_of(target_), shortened(method_))};
  }
  if (route == Route::none) {
    return Refusal{404, "not_found_error",
                   fmt::format("there is no {}", shortened(path_of(target_)))};
  }
  const uint64_t promised =
      parser.content_length().value_or(parser.chunked() ? front_.options_.max_body_bytes : 0);
  if (front_.body_bytes_ + promised > front_.options_.body_budget_bytes) {
    return Refusal{503, "overloaded_error", "too many large requests at once; try again later"};
  }
  return std::nullopt;
}

Task<bool> Session::read_body(Parser& parser) {
  const uint64_t promised =
      parser.content_length().value_or(parser.chunked() ? front_.options_.max_body_bytes : 0);
  reserved_bytes_ = promised;
  front_.body_bytes_ += promised;
  if (lower(view_of(parser.get()[http::field::expect])) == "100-continue") {
    const bool sent = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!sent) co_return false;
  }
  ErrorCode error;
  arm(front_.options_.header_timeout +
      std::chrono::seconds(promised / kSlowestUploadBytesPerSecond));
  co_await http::async_read(socket_, buffer_, parser, into(error));
  disarm();
  if (!socket_.is_open()) co_return false;
  if (error == http::error::partial_message || error == http::error::end_of_stream) {
    co_return false;
  }
  if (error) {
    co_await refuse_and_close(
        refusal_of(error, front_.options_.max_header_bytes, front_.options_.max_body_bytes));
    co_return false;
  }
  const uint64_t size = parser.get().body().size();
  front_.body_bytes_ -= reserved_bytes_ - size;
  reserved_bytes_ = size;
  co_return true;
}

// False when the connection must end.
Task<bool> Session::handle(Parser& parser) {
  if (const auto refusal = objection(parser)) {
    // What follows an unknown transfer coding, or the head of a tunnel, is no next request.
    const bool has_body = parser.get().count(http::field::transfer_encoding) > 0 ||
                          parser.content_length().value_or(0) > 0 || method_ == "CONNECT";
    const bool go_on = has_body ? co_await refuse_and_close(*refusal) : co_await refuse(*refusal);
    co_return go_on;
  }
  const bool read = co_await read_body(parser);
  if (!read) co_return false;
  bool go_on = false;
  switch (route_of(method_, target_)) {
    case Route::page:
      go_on = co_await answer_page(front_.pages_.at(std::string(path_of(target_))));
      break;
    case Route::side_call:
      go_on = co_await answer_from_rank(client_request(parser));
      break;
    case Route::generate:
      go_on = co_await generate(client_request(parser));
      break;
    case Route::none:
    case Route::wrong_method:
      break;
  }
  co_return go_on;
}

ClientRequest Session::client_request(Parser& parser) const {
  // Of an answer to HEAD the body is left out here.
  ClientRequest request{
      method_ == "HEAD" ? "GET" : method_, target_, {}, std::move(parser.get().body())};
  for (const auto& field : parser.get()) {
    const std::string name = lower(view_of(field.name_string()));
    if (name == "content-type" || name == "accept" || name.starts_with("anthropic-")) {
      request.headers.emplace_back(name, std::string(field.value()));
    }
  }
  return request;
}

// Returns how many bytes the connection took.
size_t Session::write_now(std::string_view text) {
  ErrorCode error;
  const size_t n = socket_.write_some(asio::buffer(text.data(), text.size()), error);
  return error ? 0 : n;  // whoever waits for room hears of the error
}

Task<bool> Session::write(std::string text) {
  const size_t n_written = write_now(text);
  if (n_written == text.size()) co_return true;
  ErrorCode error;
  arm(front_.options_.reader_timeout);
  co_await asio::async_write(socket_, asio::buffer(text) + n_written, into(error));
  disarm();
  co_return !error;
}

Task<bool> Session::refuse(const Refusal& refusal) {
  RankReply reply;
  reply.head = {refusal.status, {{"content-type", "application/json"}}};
  if (refusal.status == 503) reply.head.headers.emplace_back("retry-after", "1");
  if (refusal.status == 405) reply.head.headers.emplace_back("allow", allowed_methods(target_));
  reply.body = error_json(target_, refusal);
  if (refusal.status < 500) ++front_.counts_.bad_requests;
  const bool sent = co_await send_reply(reply);
  co_return sent;
}

// For a request of which a part is still on its way: closing at once would take the answer back
// from a client that is still writing.
Task<bool> Session::refuse_and_close(Refusal refusal) {
  connection_.keep_alive = false;
  co_await refuse(refusal);
  ErrorCode error;
  socket_.shutdown(Tcp::socket::shutdown_send, error);  // fails when the client has gone
  const Clock::time_point end = Clock::now() + kMaxLinger;
  std::array<char, 64 << 10> scratch;
  while (!error && Clock::now() < end) {
    arm(kLinger);
    co_await socket_.async_read_some(asio::buffer(scratch), into(error));
  }
  co_return false;
}

Task<bool> Session::send_reply(const RankReply& reply) {
  AnswerHead head = reply.head;
  head.headers.emplace_back("x-request-id", request_id_);
  status_sent_ = head.status;
  std::string text = response_head(head, connection_, reply.body.size());
  if (method_ != "HEAD") text += reply.body;
  const bool sent = co_await write(std::move(text));
  front_.counts_.answer_bytes += reply.body.size();
  co_return sent&& connection_.keep_alive;
}

Task<bool> Session::answer_page(const Page& page) {
  const RankReply reply = co_await page.answer(target_);
  const bool go_on = co_await send_reply(reply);
  co_return go_on;
}

// Needs no engine: rank 0 answers alone, without a number.
Task<bool> Session::answer_from_rank(ClientRequest request) {
  const auto endpoints = front_.dispatcher_.endpoints();
  std::optional<RankReply> reply;
  if (endpoints) {
    reply = co_await call_rank(front_.io_, *endpoints, 0, std::move(request), kSideCallDeadline);
  }
  bool go_on = false;
  if (reply) {
    go_on = co_await send_reply(*reply);
  } else {
    const Refusal refusal{503, "overloaded_error", "the engine is starting; try again later"};
    go_on = co_await refuse(refusal);
  }
  co_return go_on;
}

}  // namespace lockstep::serve
