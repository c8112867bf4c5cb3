#include "engine/serve/messages.h"

namespace lockstep::serve {

std::string AnswerHead::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return {};
}

bool AnswerHead::is_event_stream() const {
  return header("content-type").starts_with("text/event-stream");
}

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::queued:
      return "queued";
    case Phase::prefill:
      return "prefill";
    case Phase::decode:
      return "decode";
    case Phase::ended:
      return "ended";
  }
  return "";
}

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::running:
      return "running";
    case Outcome::finished:
      return "finished";
    case Outcome::client_gone:
      return "client_gone";
    case Outcome::slow_reader:
      return "slow_reader";
    case Outcome::timed_out:
      return "timed_out";
    case Outcome::rank_failure:
      return "rank_failure";
    case Outcome::undeliverable:
      return "undeliverable";
  }
  return "";
}

}  // namespace lockstep::serve
