// A client of OpenAI-compatible endpoints over plain HTTP: completions with log-probabilities, and
// chat.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "validation/diverge/side.h"

namespace lockstep {

struct ChatAnswer {
  std::string text;
  std::string finish_reason;  // "stop", "length", ...
  int64_t completion_tokens = 0;
  double seconds = 0;
};

class OpenAiClient {
 public:
  // "http://HOST:PORT[/PATH]"; a path that does not end in /v1 gets it. Throws Error (usage).
  OpenAiClient(const std::string& url, const std::string& model, std::chrono::seconds timeout);
  ~OpenAiClient();

  // Greedy, `max_tokens` at most, with `top` log-probabilities a step (fewer, or only the fields of
  // the original API, for an endpoint that refuses), running on through end-of-turn where the
  // endpoint knows "ignore_eos". `prompt` goes on behind `forced`. Token ids come from "id" or
  // "token_id:N" in the answer; one without log-probabilities has no steps. Throws Error (exit 3)
  // that names URL and reason.
  SideRun complete(const DivergePrompt& prompt, const std::vector<int32_t>& forced, int max_tokens,
                   int top) const;

  // One user turn, greedy, without thinking.
  ChatAnswer ask(const std::string& question, int max_tokens) const;

 private:
  struct Answer {
    int status = 0;
    std::string body;
  };
  Answer post(const std::string& path, const std::string& body) const;
  std::string accepted(const std::string& path, Answer answer) const;  // its body; throws
  // Takes back what the endpoint has just refused; false when that is not known.
  bool give_way(const Answer& refusal) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
