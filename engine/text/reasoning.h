// Splits generated text into reasoning and answer at </think>.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

struct ReasoningDelta {
  std::string reasoning;
  std::string content;
};

// Takes text in pieces of any size; the deltas together do not depend on where the pieces end. The
// newlines around </think> belong to it. Text is held back while it may be part of a marker.
class ReasoningSplitter {
 public:
  // `starts_inside`: the prompt ends with an open <think>, so the text begins as reasoning.
  // Otherwise it is an answer, unless it begins with <think> itself. `tool_call_ends_reasoning`: a
  // <tool_call> inside the reasoning is the model's forgotten </think> (set it when the request has
  // tools).
  ReasoningSplitter(bool starts_inside, bool tool_call_ends_reasoning)
      : starts_inside_(starts_inside), tool_call_ends_reasoning_(tool_call_ends_reasoning) {}

  ReasoningDelta push(std::string_view text);
  // What was held back. The generation has ended.
  ReasoningDelta finish();

 private:
  enum class Stage { start, reasoning, after_marker, content };

  bool step(ReasoningDelta& delta);
  bool begin(ReasoningDelta& delta);
  bool read_reasoning(ReasoningDelta& delta);

  bool starts_inside_;
  bool tool_call_ends_reasoning_;
  Stage stage_ = Stage::start;
  std::string pending_;
};

ReasoningDelta split_reasoning(std::string_view text, bool starts_inside,
                               bool tool_call_ends_reasoning);

}  // namespace lockstep
