// The two engines of a divergence: programs that run jobs, OpenAI-compatible endpoints, or a
// recorded oracle. All of them answer the same questions.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "validation/engine_run.h"
#include "validation/oracle.h"

namespace lockstep {

// By id where the side knows it, else by its text.
struct Token {
  int32_t id = -1;
  std::string text;

  bool operator==(const Token& other) const {
    return id >= 0 && other.id >= 0 ? id == other.id : text == other.text;
  }
};

struct TokenLogprob {
  Token token;
  double logprob = 0;  // natural logarithm; NaN when the side computed none
};

struct SideStep {
  Token chosen;
  std::vector<TokenLogprob> top;  // the strongest first

  // Of `token`; nothing when it is not in the list.
  std::optional<double> logprob_of(const Token& token) const;
};

struct SideRun {
  std::vector<SideStep> steps;  // none from an endpoint without log-probabilities
  std::string text;             // of the free run
};

// Both by id or both by text: only then can tokens be compared.
bool share_names(const Token& a, const Token& b);

struct DivergePrompt {
  std::string name;
  std::vector<int32_t> ids;  // or, when empty,
  std::string text;
};

struct TapJob {
  DivergePrompt prompt;
  std::vector<int32_t> forced;
  std::filesystem::path inject;  // empty: a plain run
};

class Side {
 public:
  virtual ~Side() = default;
  virtual std::string label() const = 0;
  // Greedy runs of `max_tokens`, one a prompt.
  virtual std::vector<SideRun> run(const std::vector<DivergePrompt>& prompts, int max_tokens) = 0;
  // The side's own choices where it is fed the tokens of `reference`, one run a prompt. A side that
  // cannot be fed beyond a fork stops there.
  virtual std::vector<SideRun> follow(const std::vector<DivergePrompt>& prompts,
                                      const std::vector<SideRun>& reference) = 0;
  // Row taps (docs/formats/taps.md) at all positions; nothing when the side gives no access.
  virtual std::optional<std::vector<TapMap>> taps(const std::vector<TapJob>& jobs) = 0;
};

struct SideOptions {
  std::filesystem::path model;  // for programs that name no --model of their own
  std::string served_model;     // for endpoints: "model" of the request
  int top = 16;                 // logprobs a step
  std::chrono::seconds timeout{1800};
};

// "http://HOST:PORT[/PATH]", "oracle:PREFIX", or a program and its flags, parted by spaces.
// `oracle` is given to oracle sides for their prompts. Throws Error (usage).
std::unique_ptr<Side> make_side(const std::string& spec, const SideOptions& options);

std::unique_ptr<Side> make_endpoint_side(const std::string& url, const SideOptions& options);
std::unique_ptr<Side> make_program_side(const std::string& command, const SideOptions& options);
std::unique_ptr<Side> make_oracle_side(const std::string& prefix);

}  // namespace lockstep
