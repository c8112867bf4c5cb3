// What the proxy answers itself: the web page, health, metrics and state.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/serve/dispatcher.h"
#include "engine/serve/front.h"
#include "engine/serve/rank_pair.h"
#include "engine/serve/rank_watch.h"
#include "engine/serve/server.h"

namespace lockstep::serve {

class OwnPages {
 public:
  // All references must outlive the pages.
  OwnPages(asio::io_context& io, const ServeFlags& flags, Dispatcher& dispatcher, RankPair& pair,
           RankWatch& watch);

  void set_front(const Front& front) { front_ = &front; }
  std::map<std::string, Page> pages();

 private:
  Task<RankReply> health() const;
  Task<RankReply> ready();
  std::string metrics_text() const;
  Task<RankReply> metrics();
  Task<RankReply> status() const;
  Task<bool> probe();

  asio::io_context& io_;
  const ServeFlags& flags_;
  Dispatcher& dispatcher_;
  RankPair& pair_;
  RankWatch& watch_;
  const Front* front_ = nullptr;
  const Clock::time_point start_ = Clock::now();
  std::shared_ptr<Exchange> probe_;  // the one under way
  uint64_t n_pieces_seen_ = 0;
  Clock::time_point answer_seen_;
};

}  // namespace lockstep::serve
