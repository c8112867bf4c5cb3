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

  // Greedy, `max_tokens` at most, with `top` log-probabilities a step, running on through
  // end-of-turn where the endpoint knows "ignore_eos". `prompt` goes on behind `forced`. Token ids
  // come from "id" or "token_id:N" in the answer. Throws Error (exit 3) that names URL and reason.
  SideRun complete(const DivergePrompt& prompt, const std::vector<int32_t>& forced, int max_tokens,
                   int top) const;

  // One user turn, greedy, without thinking.
  ChatAnswer ask(const std::string& question, int max_tokens) const;

 private:
  std::string post(const std::string& path, const std::string& body) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
