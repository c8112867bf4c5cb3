// What goes between client, proxy and ranks, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::serve {

using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct ClientRequest {
  std::string method;
  std::string target;
  HeaderList headers;  // those that ranks get to see
  std::string body;
};

struct AnswerHead {
  unsigned status = 0;
  HeaderList headers;  // without those that belong to the connection

  std::string header(std::string_view lower_case_name) const;
  bool is_event_stream() const;
  bool operator==(const AnswerHead&) const = default;
};

enum class Phase : uint8_t { queued, prefill, decode, ended };
const char* phase_name(Phase phase);

enum class Outcome : uint8_t {
  running,
  finished,      // both ranks ended it properly, also with an error of theirs
  client_gone,   // closed its connection
  slow_reader,   // left more unread than the buffer holds, or read nothing for too long
  timed_out,     // --timeout
  rank_failure,  // the ranks were restarted
  undeliverable  // a rank could not take it; its number is void
};
const char* outcome_name(Outcome outcome);

struct RankReply {
  AnswerHead head;
  std::string body;
};

// What the client is told instead of (the rest of) an answer.
struct Refusal {
  unsigned status = 503;
  std::string type;  // as OpenAI and Anthropic name it: "overloaded_error", ...
  std::string message;
};

}  // namespace lockstep::serve
