#include "engine/rank/http/exchange.h"

#include <algorithm>
#include <utility>

#include "engine/rank/api/api_error.h"
#include "engine/rank/api/openai_json.h"
#include "engine/rank/http/job_record.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLookForClient{100};
constexpr int kCancelledStatus = 499;  // as nginx names a client that left

const char* finish_name(const Exchange& exchange) {
  if (exchange.outcome.reason != FinishReason::cancelled) {
    return openai_finish_reason(exchange.end().reason);
  }
  return exchange.outcome.too_slow ? "too_slow" : "cancelled";
}

HttpReply cancelled_reply(const std::string& path) {
  const ApiError error(kCancelledStatus, "request_cancelled", "", "request_cancelled",
                       "the request was cancelled");
  return {kCancelledStatus, "application/json", error_body(error, dialect_of_path(path)), {}};
}

}  // namespace

std::optional<RoundOutput> Exchange::next() {
  RoundOutput output;
  for (;;) {
    switch (ticket->take(output, outcome, kLookForClient)) {
      case Ticket::State::output:
        if (!first_token) first_token = Clock::now();
        ids.insert(ids.end(), output.ids.begin(), output.ids.end());
        usage.cached_tokens = output.cached_tokens;
        return output;
      case Ticket::State::finished:
        return std::nullopt;
      case Ticket::State::waiting:
        break;
    }
    if (cancel_sent || !client_gone()) continue;
    scheduler->cancel(ticket->sequence());
    cancel_sent = true;
  }
}

AnswerPiece Exchange::read(const RoundOutput& output) {
  AnswerPiece piece = reader->push(output.ids, output.logits);
  answer.add(piece);
  return piece;
}

AnswerEnd Exchange::end() const {
  AnswerEnd end;
  end.usage = usage;
  end.usage.completion_tokens = reader->n_tokens();
  end.usage.reasoning_tokens = reader->n_reasoning_tokens();
  if (outcome.reason == FinishReason::length) {
    end.reason = EndReason::length;
  } else if (reader->has_calls()) {
    end.reason = EndReason::tool_calls;
  } else if (const auto stop = reader->stop_string()) {
    end.reason = EndReason::stop_string;
    end.stop_string = *stop;
  }
  return end;
}

void Exchange::write_log(const char* finish_reason, int status) const {
  RequestEvent event;
  event.id = request_id;
  event.sequence = ticket->sequence();
  event.api = api;
  event.status = status;
  event.stream = asked.stream;
  event.usage = end().usage;
  event.outcome = outcome;
  event.finish_reason = finish_reason;
  event.seed = asked.sampling.seed;
  const auto seconds = [this](Clock::time_point at) {
    return std::chrono::duration<double>(at - start).count();
  };
  event.total_s = seconds(Clock::now());
  if (first_token) event.queue_s = std::max(0.0, seconds(*first_token) - outcome.prefill_s);
  event.digest = result_digest(ids);
  const bool cancelled = outcome.reason == FinishReason::cancelled;
  const auto n_tokens = static_cast<int64_t>(ids.size());
  const int64_t replayed = cancelled ? n_tokens : max_tokens;
  if (!job.empty() && replayed > 0) event.job = with_max_tokens(job, replayed);
  event.prompt = prompt;
  event.answer = answer.reasoning + answer.content;
  log->write(event);
}

HttpReply whole_answer(Exchange& exchange) {
  while (const auto output = exchange.next()) exchange.read(*output);
  if (exchange.outcome.reason == FinishReason::cancelled) {
    exchange.write_log(finish_name(exchange), kCancelledStatus);
    return cancelled_reply(exchange.api);
  }
  exchange.answer.add(exchange.reader->finish());
  exchange.write_log(finish_name(exchange), 200);
  return {200, "application/json", exchange.format->whole(exchange.answer, exchange.end()), {}};
}

HttpReply stream_answer(const std::shared_ptr<Exchange>& exchange) {
  exchange->first_output = exchange->next();
  if (!exchange->first_output) {
    exchange->write_log(finish_name(*exchange), kCancelledStatus);
    return cancelled_reply(exchange->api);
  }
  HttpReply reply;
  reply.content_type = "text/event-stream";
  reply.stream = [exchange](const HttpReply::Writer& write) {
    Exchange& e = *exchange;
    bool reachable = write(e.format->begin(e.usage));
    for (auto output = std::exchange(e.first_output, {}); output; output = e.next()) {
      const AnswerPiece piece = e.read(*output);
      if (reachable) reachable = write(e.format->piece(piece));
      if (reachable || e.cancel_sent) continue;
      e.scheduler->cancel(e.ticket->sequence());
      e.cancel_sent = true;
    }
    const bool complete = e.outcome.reason != FinishReason::cancelled;
    if (complete) {
      const AnswerPiece last = e.reader->finish();
      e.answer.add(last);
      std::string tail = e.format->piece(last);
      tail += e.format->end(e.end());
      reachable = reachable && write(tail);
    }
    e.write_log(finish_name(e), 200);
    return complete && reachable;
  };
  return reply;
}

HttpReply await_probe(Ticket& ticket, Scheduler& scheduler,
                      const std::function<bool()>& client_gone) {
  RoundOutput output;
  Outcome outcome;
  bool got_token = false;
  bool cancel_sent = false;
  for (;;) {
    const Ticket::State state = ticket.take(output, outcome, kLookForClient);
    if (state == Ticket::State::output) got_token = true;
    if (state == Ticket::State::finished) break;
    if (state != Ticket::State::waiting || cancel_sent || !client_gone()) continue;
    scheduler.cancel(ticket.sequence());
    cancel_sent = true;
  }
  if (got_token) return {200, "application/json", "{\"status\":\"ready\"}", {}};
  return {503, "application/json", "{\"status\":\"cancelled\"}", {}};
}

}  // namespace lockstep
