// One generating request between its submission and the last byte of its answer.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/rank/api/answer.h"
#include "engine/rank/api/answer_format.h"
#include "engine/rank/http/event_log.h"
#include "engine/rank/http/http_server.h"
#include "engine/rank/http/scheduler.h"

namespace lockstep {

struct Exchange {
  using Clock = std::chrono::steady_clock;

  std::string api;
  std::string request_id;
  GenerationRequest asked;
  std::optional<AnswerReader> reader;
  std::unique_ptr<AnswerFormat> format;
  AnswerUsage usage;
  std::string prompt;  // for the log
  std::string job;     // that runs it again, for the log
  int64_t max_tokens = 0;
  std::function<bool()> client_gone;
  Scheduler* scheduler = nullptr;
  EventLog* log = nullptr;
  std::shared_ptr<Ticket> ticket;

  // As the answer proceeds.
  Clock::time_point start = Clock::now();
  std::optional<Clock::time_point> first_token;
  std::optional<RoundOutput> first_output;
  Outcome outcome;
  Answer answer;
  std::vector<int32_t> ids;
  bool cancel_sent = false;

  // The next output; nothing once the request has ended (`outcome` is then set). Cancels the
  // request when its client has left.
  std::optional<RoundOutput> next();
  AnswerPiece read(const RoundOutput& output);
  AnswerEnd end() const;
  void write_log(const char* finish_reason, int status) const;
};

// Waits for the whole answer. 499 when the request was cancelled.
HttpReply whole_answer(Exchange& exchange);

// Waits for the first tokens, then streams. 499 when the request was cancelled before.
HttpReply stream_answer(const std::shared_ptr<Exchange>& exchange);

// 200 once the probe has its token.
HttpReply await_probe(Ticket& ticket, Scheduler& scheduler,
                      const std::function<bool()>& client_gone);

}  // namespace lockstep
