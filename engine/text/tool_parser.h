// Tool calls in generated text:
//   <tool_call> <function=NAME> <parameter=KEY> value </parameter> ... </function> </tool_call>
// (white space between tags is free; one newline on each side of a value belongs to the tags).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The parameter types that the request's tools declare.
class ToolSchemas {
 public:
  // `body_json`: the body of a chat-completions request, or any object with `tools` in that form.
  // Throws Error for text that is not a JSON object; tools without a schema have parameters of
  // text.
  static ToolSchemas from_request(std::string_view body_json);
  ToolSchemas();
  ~ToolSchemas();
  ToolSchemas(const ToolSchemas&);
  ToolSchemas& operator=(const ToolSchemas&);

  // The JSON of a parameter's text. A parameter that the schema declares as a string, or does not
  // declare, is text as it stands; another is its JSON when that is valid and of a declared type,
  // and text otherwise.
  std::string value_json(const std::string& function, const std::string& parameter,
                         std::string_view text) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

struct ToolEvent {
  enum class Kind {
    content,    // `text` belongs to the answer
    call,       // call number `index` (from 0) begins; `text` is the function's name
    arguments,  // `text` continues the JSON object of the arguments of call `index`
  };
  Kind kind;
  size_t index;
  std::string text;
};

// Takes text in pieces of any size; the events, joined, do not depend on where the pieces end. A
// call is given out when it is complete and well formed, because nothing that was given out can be
// taken back: what only looks like a call (bad form, text between its tags, no end) stays content,
// tags included. White space before a call, and after the last one, is dropped.
class ToolParser {
 public:
  explicit ToolParser(ToolSchemas schemas) : schemas_(std::move(schemas)) {}

  std::vector<ToolEvent> push(std::string_view text);
  // What was held back. The generation has ended.
  std::vector<ToolEvent> finish();

 private:
  enum class Stage { function, name, parameter_or_end, key, value, close };
  enum class Outcome { more, malformed, complete, advanced };
  struct Parameter {
    std::string key;
    std::string text;
  };
  // A call being read: offsets into buffer_, which begins with the opening tag.
  struct Call {
    Stage stage = Stage::function;
    size_t at = 0;
    size_t search_from = 0;
    std::string name;
    std::vector<Parameter> parameters;
  };

  void drain(std::vector<ToolEvent>& events);
  bool read_content(std::vector<ToolEvent>& events);
  bool read_call(std::vector<ToolEvent>& events);
  Outcome advance();
  Outcome read_until_bracket(std::string& name, Stage next);
  Outcome read_parameter_or_end();
  Outcome read_value();
  void skip_white_space(size_t& at) const;
  void give_content(std::vector<ToolEvent>& events, std::string_view text);
  void give_call(std::vector<ToolEvent>& events);

  ToolSchemas schemas_;
  std::string buffer_;
  std::string blank_;  // white space that goes if a call follows
  bool in_call_ = false;
  Call call_;
  size_t n_calls_ = 0;
};

struct ToolCall {
  std::string name;
  std::string arguments_json;
};
struct ParsedTools {
  std::string content;
  std::vector<ToolCall> calls;
};
ParsedTools parse_tools(std::string_view text, const ToolSchemas& schemas);

}  // namespace lockstep
