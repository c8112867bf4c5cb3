#include "engine/text/tool_parser.h"

#include <algorithm>

#include "engine/text/marker_scan.h"

namespace lockstep {
namespace {

constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::string_view kWhiteSpace = " \n\t\r";
constexpr size_t kMaxName = 256;

// Whether `text` could still become one that begins with `tag`.
bool may_become(std::string_view text, std::string_view tag) {
  return text.size() < tag.size() && tag.starts_with(text);
}

std::string_view without_outer_newlines(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::vector<ToolEvent> ToolParser::push(std::string_view text) {
  buffer_ += text;
  std::vector<ToolEvent> events;
  drain(events);
  return events;
}

std::vector<ToolEvent> ToolParser::finish() {
  std::vector<ToolEvent> events;
  // A call without an end is content; what follows its opening tag may hold another.
  while (in_call_) {
    in_call_ = false;
    give_content(events, kCall);
    buffer_.erase(0, kCall.size());
    drain(events);
  }
  give_content(events, buffer_);
  buffer_.clear();
  if (n_calls_ == 0 && !blank_.empty()) events.push_back({ToolEvent::Kind::content, 0, blank_});
  blank_.clear();
  return events;
}

void ToolParser::drain(std::vector<ToolEvent>& events) {
  while (in_call_ ? read_call(events) : read_content(events)) {
  }
}

// Text up to the next opening tag; false when more text is needed.
bool ToolParser::read_content(std::vector<ToolEvent>& events) {
  const std::string_view text = buffer_;
  const size_t tag = text.find(kCall);
  const size_t end =
      tag != std::string_view::npos ? tag : text.size() - partial_marker_length(text, kCall);
  std::string_view content = text.substr(0, end);
  const size_t last = content.find_last_not_of(kWhiteSpace);
  const size_t blank_begin = last == std::string_view::npos ? 0 : last + 1;
  give_content(events, content.substr(0, blank_begin));
  blank_ += content.substr(blank_begin);
  buffer_.erase(0, end);
  if (tag == std::string_view::npos) return false;
  in_call_ = true;
  call_ = Call();
  call_.at = kCall.size();
  return true;
}

bool ToolParser::read_call(std::vector<ToolEvent>& events) {
  Outcome outcome = Outcome::advanced;
  while (outcome == Outcome::advanced) outcome = advance();
  if (outcome == Outcome::more) return false;
  in_call_ = false;
  if (outcome == Outcome::complete) {
    give_call(events);
    buffer_.erase(0, call_.at);
  } else {
    give_content(events, kCall);
    buffer_.erase(0, kCall.size());
  }
  return true;
}

void ToolParser::skip_white_space(size_t& at) const {
  at = std::min(buffer_.find_first_not_of(kWhiteSpace, at), buffer_.size());
}

ToolParser::Outcome ToolParser::advance() {
  switch (call_.stage) {
    case Stage::function: {
      skip_white_space(call_.at);
      const std::string_view rest = std::string_view(buffer_).substr(call_.at);
      if (may_become(rest, kFunction)) return Outcome::more;
      if (!rest.starts_with(kFunction)) return Outcome::malformed;
      call_.at += kFunction.size();
      call_.stage = Stage::name;
      return Outcome::advanced;
    }
    case Stage::name:
      return read_until_bracket(call_.name, Stage::parameter_or_end);
    case Stage::parameter_or_end:
      return read_parameter_or_end();
    case Stage::key:
      return read_until_bracket(call_.parameters.back().key, Stage::value);
    case Stage::value:
      return read_value();
    case Stage::close: {
      skip_white_space(call_.at);
      const std::string_view rest = std::string_view(buffer_).substr(call_.at);
      if (may_become(rest, kCallEnd)) return Outcome::more;
      if (!rest.starts_with(kCallEnd)) return Outcome::malformed;
      call_.at += kCallEnd.size();
      return Outcome::complete;
    }
  }
  return Outcome::malformed;
}

// The name in <function=NAME> or <parameter=NAME>.
ToolParser::Outcome ToolParser::read_until_bracket(std::string& name, Stage next) {
  const size_t end = buffer_.find_first_of("><\n", call_.at);
  if (end == std::string::npos) {
    return buffer_.size() - call_.at > kMaxName ? Outcome::malformed : Outcome::more;
  }
  if (buffer_[end] != '>' || end == call_.at || end - call_.at > kMaxName)
    return Outcome::malformed;
  name = buffer_.substr(call_.at, end - call_.at);
  call_.at = end + 1;
  call_.search_from = call_.at;
  call_.stage = next;
  return Outcome::advanced;
}

ToolParser::Outcome ToolParser::read_parameter_or_end() {
  skip_white_space(call_.at);
  const std::string_view rest = std::string_view(buffer_).substr(call_.at);
  if (may_become(rest, kParameter) || may_become(rest, kFunctionEnd)) return Outcome::more;
  if (rest.starts_with(kParameter)) {
    call_.at += kParameter.size();
    call_.parameters.emplace_back();
    call_.stage = Stage::key;
    return Outcome::advanced;
  }
  if (!rest.starts_with(kFunctionEnd)) return Outcome::malformed;
  call_.at += kFunctionEnd.size();
  call_.stage = Stage::close;
  return Outcome::advanced;
}

// A value may hold any text, its own end tag too: it ends at the first end tag that another
// parameter or the function's end follows.
ToolParser::Outcome ToolParser::read_value() {
  const std::string_view text = buffer_;
  for (;;) {
    const size_t end = text.find(kParameterEnd, call_.search_from);
    if (end == std::string_view::npos) {
      const size_t overlap = std::min(kParameterEnd.size() - 1, text.size() - call_.search_from);
      call_.search_from = text.size() - overlap;
      return Outcome::more;
    }
    size_t after = end + kParameterEnd.size();
    skip_white_space(after);
    const std::string_view rest = text.substr(after);
    if (may_become(rest, kParameter) || may_become(rest, kFunctionEnd)) {
      call_.search_from = end;
      return Outcome::more;
    }
    if (rest.starts_with(kParameter) || rest.starts_with(kFunctionEnd)) {
      call_.parameters.back().text = without_outer_newlines(text.substr(call_.at, end - call_.at));
      call_.at = after;
      call_.stage = Stage::parameter_or_end;
      return Outcome::advanced;
    }
    call_.search_from = end + 1;
  }
}

void ToolParser::give_content(std::vector<ToolEvent>& events, std::string_view text) {
  if (text.empty()) return;
  events.push_back({ToolEvent::Kind::content, 0, blank_ + std::string(text)});
  blank_.clear();
}

}  // namespace lockstep
