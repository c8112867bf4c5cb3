#include "engine/text/reasoning.h"

#include "engine/text/marker_scan.h"

namespace lockstep {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";
constexpr std::string_view kToolCall = "<tool_call>";

std::string_view without_newlines_at_end(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

ReasoningDelta ReasoningSplitter::push(std::string_view text) {
  pending_ += text;
  ReasoningDelta delta;
  while (step(delta)) {
  }
  return delta;
}

ReasoningDelta ReasoningSplitter::finish() {
  ReasoningDelta delta;
  const bool is_reasoning =
      stage_ == Stage::reasoning || (stage_ == Stage::start && starts_inside_);
  (is_reasoning ? delta.reasoning : delta.content) = std::move(pending_);
  pending_.clear();
  return delta;
}

// One change of stage; false when more text is needed.
bool ReasoningSplitter::step(ReasoningDelta& delta) {
  switch (stage_) {
    case Stage::start:
      return begin(delta);
    case Stage::reasoning:
      return read_reasoning(delta);
    case Stage::after_marker: {
      const size_t first = pending_.find_first_not_of('\n');
      pending_.erase(0, first);
      if (pending_.empty()) return false;
      stage_ = Stage::content;
      return true;
    }
    case Stage::content:
      delta.content += pending_;
      pending_.clear();
      return false;
  }
  return false;
}

bool ReasoningSplitter::begin(ReasoningDelta&) {
  const size_t first = pending_.find_first_not_of(" \n\t\r");
  if (first == std::string::npos) return false;
  const std::string_view rest = std::string_view(pending_).substr(first);
  if (rest.size() < kOpen.size() && kOpen.starts_with(rest)) return false;
  if (rest.starts_with(kOpen)) {
    pending_.erase(0, first + kOpen.size());
    stage_ = Stage::reasoning;
  } else {
    stage_ = starts_inside_ ? Stage::reasoning : Stage::content;
  }
  return true;
}

bool ReasoningSplitter::read_reasoning(ReasoningDelta& delta) {
  const std::string_view text = pending_;
  const size_t close = text.find(kClose);
  const size_t call = tool_call_ends_reasoning_ ? text.find(kToolCall) : std::string_view::npos;
  const size_t end = std::min(close, call);
  if (end != std::string_view::npos) {
    delta.reasoning += without_newlines_at_end(text.substr(0, end));
    pending_.erase(0, end == close ? end + kClose.size() : end);
    stage_ = Stage::after_marker;
    return true;
  }
  size_t held = partial_marker_length(text, kClose);
  if (tool_call_ends_reasoning_) held = std::max(held, partial_marker_length(text, kToolCall));
  const std::string_view certain = without_newlines_at_end(text.substr(0, text.size() - held));
  delta.reasoning += certain;
  pending_.erase(0, certain.size());
  return false;
}

ReasoningDelta split_reasoning(std::string_view text, bool starts_inside,
                               bool tool_call_ends_reasoning) {
  ReasoningSplitter splitter(starts_inside, tool_call_ends_reasoning);
  ReasoningDelta whole = splitter.push(text);
  const ReasoningDelta rest = splitter.finish();
  whole.reasoning += rest.reasoning;
  whole.content += rest.content;
  return whole;
}

}  // namespace lockstep
