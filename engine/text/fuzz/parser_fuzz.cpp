// Any bytes as generated text, in pieces of the size that the first byte says: tool calls,
// reasoning and stop strings must come out as from the whole text.
#include "engine/base/error.h"
#include "engine/text/reasoning.h"
#include "engine/text/stop_strings.h"
#include "engine/text/tool_parser.h"
#include "engine/text/utf8.h"

namespace {

using namespace lockstep;

const ToolSchemas& schemas() {
  static const ToolSchemas instance = ToolSchemas::from_request(
      R"({"tools": [{"function": {"name": "f", "parameters": {"properties":
         {"a": {"type": "integer"}, "b": {"type": "object"}, "c": {"type": "string"}}}}}]})");
  return instance;
}

std::string joined(const std::vector<ToolEvent>& events) {
  std::string content;
  std::string calls;
  for (const ToolEvent& event : events) {
    (event.kind == ToolEvent::Kind::content ? content : calls) += event.text;
  }
  return content + '\0' + calls;
}

void append(std::vector<ToolEvent>& events, const std::vector<ToolEvent>& more) {
  events.insert(events.end(), more.begin(), more.end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0] % 16;
  const bool starts_inside = (data[0] & 16) != 0;
  const std::string text =
      replace_invalid_utf8({reinterpret_cast<const char*>(data) + 1, size - 1});

  std::vector<ToolEvent> whole_events;
  ToolParser whole_parser(schemas());
  append(whole_events, whole_parser.push(text));
  append(whole_events, whole_parser.finish());
  const ReasoningDelta whole = split_reasoning(text, starts_inside, true);
  StopStrings whole_stop({"ab", "</x>", "\n\n"});
  std::string whole_text = whole_stop.push(text);
  whole_text += whole_stop.finish();

  std::vector<ToolEvent> events;
  ToolParser parser(schemas());
  ReasoningSplitter splitter(starts_inside, true);
  StopStrings stop({"ab", "</x>", "\n\n"});
  ReasoningDelta parts;
  std::string stopped;
  for (size_t at = 0; at < text.size(); at += piece) {
    const std::string_view part = std::string_view(text).substr(at, piece);
    append(events, parser.push(part));
    const ReasoningDelta delta = splitter.push(part);
    parts.reasoning += delta.reasoning;
    parts.content += delta.content;
    stopped += stop.push(part);
  }
  append(events, parser.finish());
  const ReasoningDelta last = splitter.finish();
  LOCKSTEP_CHECK(joined(events) == joined(whole_events));
  LOCKSTEP_CHECK(parts.reasoning + last.reasoning == whole.reasoning);
  LOCKSTEP_CHECK(parts.content + last.content == whole.content);
  stopped += stop.finish();
  LOCKSTEP_CHECK(stopped == whole_text);
  LOCKSTEP_CHECK(stop.matched() == whole_stop.matched());
  return 0;
}
