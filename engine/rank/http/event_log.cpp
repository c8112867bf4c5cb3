#include "engine/rank/http/event_log.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/rank/http/outside.h"

namespace lockstep {

void EventLog::write(const RequestEvent& event) {
  using Json = nlohmann::ordered_json;
  Json line = {{"event", "request"},    {"time", unix_time_now_s()},  {"rank", rank_},
               {"id", event.id},        {"sequence", event.sequence}, {"api", event.api},
               {"status", event.status}};
  if (!event.error.empty()) {
    line["error"] = event.error;
  } else {
    line["stream"] = event.stream;
    line["finish_reason"] = event.finish_reason;
    line["prompt_tokens"] = event.usage.prompt_tokens;
    line["cached_tokens"] = event.usage.cached_tokens;
    line["completion_tokens"] = event.usage.completion_tokens;
    line["reasoning_tokens"] = event.usage.reasoning_tokens;
    line["drafted"] = event.outcome.drafted;
    line["accepted"] = event.outcome.accepted;
    line["seed"] = event.seed;
    line["queue_s"] = event.queue_s;
    line["prefill_s"] = event.outcome.prefill_s;
    line["decode_s"] = event.outcome.decode_s;
    line["total_s"] = event.total_s;
    line["digest"] = event.digest;
  }
  if (!event.job.empty()) line["job"] = Json::parse(event.job);
  if (with_prompts_) {
    line["prompt"] = event.prompt;
    line["answer"] = event.answer;
  }
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace lockstep
