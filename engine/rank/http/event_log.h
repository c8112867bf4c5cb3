// JSON lines on stderr: one for each request that has ended.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "engine/rank/api/answer.h"
#include "engine/rank/http/ticket.h"

namespace lockstep {

struct RequestEvent {
  std::string id;
  uint64_t sequence = 0;  // 0: had none, as it was refused
  std::string api;
  int status = 200;
  bool stream = false;
  std::string error;  // of a refused request
  AnswerUsage usage;
  Outcome outcome;
  std::string finish_reason;  // "stop", "length", "tool_calls", "cancelled", "too_slow"
  uint64_t seed = 0;
  double queue_s = 0.0;  // until the first token, less prefill
  double total_s = 0.0;
  std::string digest;  // of the generated ids
  std::string job;     // with --log-jobs: JSON
  std::string prompt;  // with --log-prompts
  std::string answer;
};

class EventLog {
 public:
  EventLog(int rank, bool with_prompts, bool with_jobs)
      : rank_(rank), with_prompts_(with_prompts), with_jobs_(with_jobs) {}

  bool with_prompts() const { return with_prompts_; }
  bool with_jobs() const { return with_jobs_; }
  void write(const RequestEvent& event);

 private:
  const int rank_;
  const bool with_prompts_;
  const bool with_jobs_;
  std::mutex mutex_;
};

}  // namespace lockstep
