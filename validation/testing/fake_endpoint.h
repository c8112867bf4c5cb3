// An OpenAI-compatible endpoint in the test's own process, with invented answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::testing {

struct FakeToken {
  int32_t id = 0;
  int32_t second = 1;
  double margin = 2;  // logprob of id minus that of second
};

struct FakeAnswers {
  std::function<FakeToken(const std::vector<int32_t>& history)> next;  // /v1/completions
  bool chat_style_logprobs = false;   // {"content": ...} instead of lists
  int most_logprobs = 1 << 20;        // more are refused; 0: none are given
  bool original_fields_only = false;  // refuses "ignore_eos" and names tokens by their text
  std::function<std::string(const std::string& question)> chat;  // /v1/chat/completions
  int64_t chat_max_tokens = 1 << 20;  // longer answers (in characters) are cut: "length"
};

class FakeEndpoint {
 public:
  explicit FakeEndpoint(FakeAnswers answers);
  ~FakeEndpoint();

  std::string url() const;  // http://127.0.0.1:PORT
  int n_requests() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::testing
