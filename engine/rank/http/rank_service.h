// What a serving rank answers to each request.
#pragma once

#include <atomic>
#include <string>

#include "engine/rank/api/served_model.h"
#include "engine/rank/http/event_log.h"
#include "engine/rank/http/generation_endpoint.h"
#include "engine/rank/http/http_server.h"
#include "engine/rank/http/scheduler.h"

namespace lockstep {

class RankService {
 public:
  // All references must outlive the service. `key`: what every request must carry in Lockstep-Key,
  // or empty.
  RankService(const LoadedRank& loaded, const RankEngine& engine, Scheduler& scheduler,
              const ServedModel& model, EventLog& log, std::string key);

  // Never throws. `found_status`: what the server itself found wrong, or 0.
  HttpReply handle(const HttpRequest& request, int found_status) const;

 private:
  HttpReply route(const HttpRequest& request) const;
  HttpReply get(const HttpRequest& request) const;
  HttpReply post(const HttpRequest& request) const;
  HttpReply ready(const HttpRequest& request) const;
  HttpReply tokens(const HttpRequest& request) const;
  HttpReply control(const HttpRequest& request) const;
  HttpReply refused(const HttpRequest& request, const ApiError& error) const;

  const LoadedRank& loaded_;
  Scheduler& scheduler_;
  const ServedModel& model_;
  EventLog& log_;
  const std::string key_;
  const GenerationEndpoint generation_;
  mutable std::atomic<int64_t> n_refused_{0};
};

}  // namespace lockstep
