#include "engine/serve/own_pages.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "engine/base/seconds_since.h"
#include "engine/serve/page_files.h"
#include "engine/serve/secrets.h"

namespace lockstep::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kFresh{10};  // an answer this young shows that tokens come
constexpr std::chrono::seconds kProbeTime{10};
constexpr std::chrono::seconds kMetricsTime{2};

RankReply json_reply(unsigned status, const Json& json) {
  RankReply reply;
  reply.head = {status, {{"content-type", "application/json"}, {"cache-control", "no-store"}}};
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return reply;
}

Task<RankReply> page_file(const PageFile* file) {
  RankReply reply;
  reply.head = {200,
                {{"content-type", std::string(file->content_type)},
                 {"cache-control", "no-cache"},
                 {"x-content-type-options", "nosniff"},
                 {"content-security-policy",
                  "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"}}};
  reply.body = std::string(file->text);
  co_return reply;
}

class Exposition {
 public:
  void add(const char* name, const char* type, const char* help, double value) {
    text_ += fmt::format(
        "# HELP lockstep_proxy_{0} {1}\n# TYPE lockstep_proxy_{0} {2}\nlockstep_proxy_{0} {3}\n",
        name, help, type, value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Json halt_json(const Halt& halt) {
  return {{"unix_time", halt.unix_time_s}, {"rank", halt.rank},
          {"exit_code", halt.exit_code},   {"reason", halt.reason},
          {"requests", halt.requests},     {"folder", halt.folder.string()}};
}

Json counts_json(const DispatcherCounts& counts) {
  return {{"taken", counts.taken},
          {"finished", counts.finished},
          {"cancelled", counts.cancelled},
          {"failed", counts.failed},
          {"refused", counts.refused}};
}

}  // namespace

OwnPages::OwnPages(asio::io_context& io, const ServeFlags& flags, Dispatcher& dispatcher,
                   RankPair& pair, RankWatch& watch)
    : io_(io), flags_(flags), dispatcher_(dispatcher), pair_(pair), watch_(watch) {}

std::map<std::string, Page> OwnPages::pages() {
  std::map<std::string, Page> pages;
  for (const PageFile& file : page_files()) {
    pages[std::string(file.path)] = {false, [&file](std::string) { return page_file(&file); }};
  }
  pages["/health"] = {false, [this](std::string) { return health(); }};
  pages["/ready"] = {false, [this](std::string) { return ready(); }};
  pages["/metrics"] = {true, [this](std::string) { return metrics(); }};
  pages["/lockstep/status"] = {true, [this](std::string) { return status(); }};
  return pages;
}

Task<RankReply> OwnPages::health() const {
  co_return json_reply(200, {{"status", "ok"}, {"ranks", state_name(pair_.state())}});
}

// True when a token could be made just now. Whoever asks meanwhile waits for the same probe.
Task<bool> OwnPages::probe() {
  if (!probe_ || probe_->outcome() != Outcome::running) {
    ClientRequest request{"POST",
                          "/v1/completions",
                          {{"content-type", "application/json"}},
                          R"({"prompt":"1","max_tokens":1,"temperature":0})"};
    auto exchange = std::make_shared<Exchange>(io_, std::move(request), dispatcher_.n_ranks());
    exchange->id = "probe-" + random_hex(6);
    exchange->unix_time_s = static_cast<int64_t>(std::time(nullptr));
    if (!dispatcher_.submit(exchange)) co_return false;
    probe_ = exchange;
  }
  const std::shared_ptr<Exchange> exchange = probe_;
  const Clock::time_point deadline = Clock::now() + kProbeTime;
  while (exchange->outcome() == Outcome::running && Clock::now() < deadline) {
    co_await sleep_for(io_, std::chrono::milliseconds(5));
  }
  dispatcher_.abandon(exchange, Outcome::timed_out);
  co_return exchange->outcome() == Outcome::finished && exchange->head() &&
      exchange->head()->status == 200;
}

Task<RankReply> OwnPages::ready() {
  if (pair_.state() != RankPair::State::ready) {
    co_return json_reply(503, {{"status", state_name(pair_.state())}});
  }
  if (dispatcher_.n_answer_pieces() != n_pieces_seen_) {
    n_pieces_seen_ = dispatcher_.n_answer_pieces();
    answer_seen_ = Clock::now();
  }
  bool fresh = answer_seen_ != Clock::time_point() && Clock::now() - answer_seen_ < kFresh;
  if (!fresh) fresh = co_await probe();
  if (fresh) co_return json_reply(200, {{"status", "ready"}});
  co_return json_reply(503, {{"status", "no token within the time of a probe"}});
}

std::string OwnPages::metrics_text() const {
  const auto number = [](auto value) { return static_cast<double>(value); };
  const DispatcherCounts& counts = dispatcher_.counts();
  const FrontCounts& front = front_->counts();
  Exposition page;
  page.add("ready", "gauge", "1 while ranks can take requests.",
           pair_.state() == RankPair::State::ready ? 1 : 0);
  page.add("starts_total", "counter", "Starts of the ranks.", number(pair_.n_starts()));
  page.add("queued", "gauge", "Requests in the queue.", number(dispatcher_.queued().size()));
  page.add("in_flight", "gauge", "Requests with the ranks.",
           number(dispatcher_.in_flight().size()));
  page.add("requests_taken_total", "counter", "Requests for the engine.", number(counts.taken));
  page.add("requests_finished_total", "counter", "Answered by the ranks.", number(counts.finished));
  page.add("requests_cancelled_total", "counter", "Client gone, slow reader or time-out.",
           number(counts.cancelled));
  page.add("requests_failed_total", "counter", "Lost to a restart.", number(counts.failed));
  page.add("requests_refused_total", "counter", "Queue full or shutting down.",
           number(counts.refused));
  page.add("bad_requests_total", "counter", "Refused by the proxy.", number(front.bad_requests));
  page.add("connections", "gauge", "Open connections.", number(front_->n_sessions()));
  page.add("connections_total", "counter", "Accepted connections.", number(front.connections));
  page.add("connections_turned_away_total", "counter", "Over the limit.",
           number(front.turned_away));
  page.add("answer_bytes_total", "counter", "Bodies sent.", number(front.answer_bytes));
  return page.text();
}

Task<RankReply> OwnPages::metrics() {
  RankReply reply;
  reply.head = {200, {{"content-type", "text/plain; version=0.0.4"}}};
  reply.body = metrics_text();
  // Rank 0's numbers stand for both: the ranks agree on every round.
  if (const auto endpoints = dispatcher_.endpoints()) {
    const auto rank = co_await call_rank(io_, *endpoints, 0, get_request("/metrics"), kMetricsTime);
    if (rank && rank->head.status == 200) reply.body += rank->body;
  }
  co_return reply;
}

Task<RankReply> OwnPages::status() const {
  Json json = {{"state", state_name(pair_.state())},
               {"starts", pair_.n_starts()},
               {"uptime_s", seconds_since(start_)},
               {"tp", flags_.run.n_ranks},
               {"slots", flags_.run.n_slots},
               {"max_queue", flags_.queue},
               {"queued", dispatcher_.queued().size()},
               {"in_flight", Json::array()},
               {"requests", counts_json(dispatcher_.counts())},
               {"connections", front_->n_sessions()},
               {"ranks", Json::array()},
               {"halts", Json::array()}};
  for (const auto& exchange : dispatcher_.in_flight()) {
    json["in_flight"].push_back({{"id", exchange->id},
                                 {"sequence", exchange->sequence},
                                 {"phase", phase_name(exchange->phase)},
                                 {"seconds", seconds_since(exchange->arrived)}});
  }
  for (int rank = 0; rank < flags_.run.n_ranks; ++rank) {
    const RankWatch::Sample& sample = watch_.sample(rank);
    Json own = Json::parse(sample.json, nullptr, false);
    if (own.is_object()) own["age_s"] = seconds_since(sample.taken);
    json["ranks"].push_back(own.is_object() ? own : Json());
  }
  for (const Halt& halt : pair_.halts()) json["halts"].push_back(halt_json(halt));
  co_return json_reply(200, json);
}

}  // namespace lockstep::serve
