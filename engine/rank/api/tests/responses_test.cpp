// OpenAI's responses, without state.
#include "engine/rank/api/responses.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/rank/api/tests/api_test_support.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using testing::answer_in;
using testing::expect_refused;
using testing::test_identity;

const std::string kTools = R"([{"type": "function", "name": "add", "parameters":
  {"type": "object", "properties": {"a": {"type": "integer"}}}}])";

GenerationRequest parse(const std::string& body) {
  return parse_response(body, {});
}

TEST(Responses, InputBecomesChatMessages) {
  const GenerationRequest request = parse(R"({"instructions": "be brief", "max_output_tokens": 7,
    "reasoning": {"effort": "none"}, "input": [
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{\"a\": 1}"},
    {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "2"}]})");
  EXPECT_EQ(request.max_tokens, 7);
  const Json chat = Json::parse(*request.chat_json);
  const Json& messages = chat["messages"];
  ASSERT_EQ(messages.size(), 4u) << chat;
  EXPECT_EQ(messages[0]["content"], "be brief");
  EXPECT_EQ(messages[1]["content"][0]["text"], "hi");
  EXPECT_EQ(messages[2]["tool_calls"].size(), 2u);
  EXPECT_EQ(messages[3]["role"], "tool");
  EXPECT_EQ(chat["chat_template_kwargs"]["enable_thinking"], false);
}

TEST(Responses, RefusesState) {
  const std::pair<const char*, const char*> cases[] = {
      {"input", R"({})"},
      {"previous_response_id", R"({"input": "hi", "previous_response_id": "resp_1"})"},
      {"conversation", R"({"input": "hi", "conversation": "c"})"},
      {"background", R"({"input": "hi", "background": true})"},
      {"text.format", R"({"input": "hi", "text": {"format": {"type": "json_object"}}})"},
      {"tools[0].type", R"({"input": "hi", "tools": [{"type": "web_search"}]})"},
      {"input[0].content[0].type",
       R"({"input": [{"role": "user", "content": [{"type": "input_file"}]}]})"},
  };
  for (const auto& [param, body] : cases) expect_refused(param, [&] { parse(body); });
}

const std::string kText =
    "hm\n</think>\n\nI add.\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
    "</function>\n</tool_call>";

TEST(Responses, AStreamEndsWithTheWholeResponse) {
  const GenerationRequest request = parse(R"({"input": "hi", "tools": )" + kTools + "}");
  const auto whole_format = response_format(test_identity(), request);
  const Json whole = Json::parse(answer_in(*whole_format, request, kText, true, false));
  ASSERT_EQ(whole["output"].size(), 3u) << whole;
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "I add.");
  EXPECT_EQ(whole["output"][2]["name"], "add");
  EXPECT_EQ(Json::parse(whole["output"][2]["arguments"].get<std::string>())["a"], 1);
  EXPECT_EQ(whole["status"], "completed");

  const auto format = response_format(test_identity(), request);
  std::istringstream lines(answer_in(*format, request, kText, true, true));
  Json last;
  std::string text;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("data: ", 0) != 0) continue;
    last = Json::parse(line.substr(6));
    EXPECT_EQ(last["sequence_number"], number++);
    if (last["type"] == "response.output_text.delta") text += last["delta"].get<std::string>();
  }
  EXPECT_EQ(text, "I add.");
  EXPECT_EQ(last["type"], "response.completed");
  EXPECT_EQ(last["response"]["output"], whole["output"]);
  EXPECT_EQ(last["response"]["usage"], whole["usage"]);
}

}  // namespace
}  // namespace lockstep
