// From generated tokens to the parts of an answer: reasoning, text, tool calls, log-probabilities.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/rank/api/generation.h"
#include "engine/rank/request.h"
#include "engine/text/detokenizer.h"
#include "engine/text/reasoning.h"
#include "engine/text/stop_strings.h"
#include "engine/text/tool_parser.h"

namespace lockstep {

struct TokenLogprob {
  std::string bytes;  // the token's own, perhaps part of a character; or "token_id:N"
  double logprob = 0.0;
  std::vector<std::pair<std::string, double>> top;  // largest first
};

// What the tokens of one round add to the answer.
struct AnswerPiece {
  std::string reasoning;
  std::vector<ToolEvent> events;  // content and calls, in order
  std::vector<TokenLogprob> logprobs;
};

struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // of the prompt
  int64_t completion_tokens = 0;  // the end-of-turn token among them
  int64_t reasoning_tokens = 0;   // of the completion
};

enum class EndReason { stop, stop_string, length, tool_calls };

struct AnswerEnd {
  EndReason reason = EndReason::stop;
  std::string stop_string;  // with EndReason::stop_string
  AnswerUsage usage;
};

// A whole answer.
struct Answer {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
  std::vector<TokenLogprob> logprobs;

  void add(const AnswerPiece& piece);
};

class AnswerReader {
 public:
  // `starts_inside`: the prompt ends with an open <think>. `tokenizer` and `request` must outlive
  // the reader. Throws Error when the request's tools are not readable.
  AnswerReader(const Tokenizer& tokenizer, const GenerationRequest& request, bool starts_inside);

  // The tokens of one round, with their logits when the request asks for log-probabilities.
  AnswerPiece push(std::span<const int32_t> ids, std::span<const StepLogits> logits);
  // What was held back. The generation has ended.
  AnswerPiece finish();

  bool has_calls() const { return has_calls_; }
  int64_t n_tokens() const { return n_tokens_; }
  int64_t n_reasoning_tokens() const { return n_reasoning_tokens_; }
  // The request's stop string that ended the answer.
  std::optional<std::string> stop_string() const;

 private:
  void read_text(std::string_view text, AnswerPiece& piece);
  void read_content(std::string_view text, AnswerPiece& piece);
  void note(std::vector<ToolEvent> events, AnswerPiece& piece);
  void count(int32_t id);

  const Tokenizer& tokenizer_;
  const GenerationRequest& request_;
  Detokenizer detokenizer_;
  StopStrings stops_;
  ReasoningSplitter splitter_;
  std::optional<ToolParser> parser_;
  AnswerPiece head_;  // what the forced prefix has brought
  std::optional<int32_t> think_begin_;
  std::optional<int32_t> think_end_;
  std::optional<int32_t> call_begin_;
  bool in_reasoning_;
  bool has_calls_ = false;
  int64_t n_tokens_ = 0;
  int64_t n_reasoning_tokens_ = 0;
};

// The strings at which the engine ends the generation of `request`, and the reader its text.
std::vector<std::string> generation_stops(const GenerationRequest& request);

}  // namespace lockstep
