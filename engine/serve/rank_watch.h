// The watchdog: asks the ranks of one start for their state and notices when they stop moving.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/serve/asio.h"
#include "engine/serve/dispatcher.h"
#include "engine/serve/progress_watch.h"

namespace lockstep::serve {

class RankWatch {
 public:
  // `on_stall` gets the rank (-1: unknown) and one line that names rank, phase and request.
  using OnStall = std::function<void(int rank, std::string reason)>;

  RankWatch(asio::io_context& io, Dispatcher& dispatcher, Clock::duration deadline, int n_ranks,
            OnStall on_stall);

  // Watches the ranks that the dispatcher now has, until it has others or none.
  void watch();

  // The last answer of GET /lockstep/status, empty when there is none, and when it came: ranks are
  // asked one by one.
  struct Sample {
    std::string json;
    Clock::time_point taken;
  };
  const Sample& sample(int rank) const;

 private:
  Task<> poll(std::shared_ptr<const RankEndpoints> endpoints, int rank,
              std::shared_ptr<ProgressWatch> progress);
  Task<> judge(std::shared_ptr<const RankEndpoints> endpoints,
               std::shared_ptr<ProgressWatch> progress);
  std::string requests_in_flight() const;

  asio::io_context& io_;
  Dispatcher& dispatcher_;
  const Clock::duration deadline_;
  const Clock::duration interval_;
  const OnStall on_stall_;
  std::vector<Sample> samples_;
};

}  // namespace lockstep::serve
