// Anthropic's messages: which requests are taken, refused and how, and what answers look like.
#include "engine/rank/api/messages.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/rank/api/tests/api_test_support.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using testing::answer_in;
using testing::expect_refused;
using testing::test_identity;

const std::string kTools = R"([{"name": "add", "description": "adds", "input_schema":
  {"type": "object", "properties": {"a": {"type": "integer"}}}}])";

std::string body_with(const std::string& more) {
  return R"({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}])" +
         (more.empty() ? "" : ", " + more) + "}";
}

GenerationRequest parse(const std::string& more) {
  return parse_message(body_with(more), {});
}

Json chat_of(const std::string& body) {
  return Json::parse(*parse_message(body, {}).chat_json);
}

TEST(Messages, ReadsEveryField) {
  const GenerationRequest request =
      parse(R"("system": [{"type": "text", "text": "be brief"}], "temperature": 0.3, "top_p": 0.8,
               "top_k": 5, "stop_sequences": ["END"], "stream": true, "metadata": {"user_id": "x"},
               "thinking": {"type": "adaptive"})");
  EXPECT_EQ(request.max_tokens, 50);
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.3f);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.stops, std::vector<std::string>{"END"});
  EXPECT_TRUE(request.stream);
  const Json chat = Json::parse(*request.chat_json);
  EXPECT_EQ(chat["messages"][0]["role"], "system");
  EXPECT_EQ(chat["messages"][0]["content"], "be brief");
  EXPECT_EQ(chat["chat_template_kwargs"]["enable_thinking"], true);
  EXPECT_EQ(Json::parse(*parse("").chat_json)["chat_template_kwargs"]["enable_thinking"], false);
}

TEST(Messages, BlocksBecomeChatMessages) {
  const Json chat = chat_of(R"({"max_tokens": 9, "messages": [
    {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source":
      {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
      {"type": "text", "text": "I add"},
      {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "2"},
      {"type": "text", "text": "and now?"}]}]})");
  const Json& messages = chat["messages"];
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["content"][1]["image_url"]["url"], "data:image/png;base64,AAAA");
  EXPECT_EQ(messages[1]["reasoning_content"], "hm");
  EXPECT_EQ(messages[1]["content"], "I add");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["name"], "add");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"]["a"], 1);
  EXPECT_EQ(messages[2]["role"], "tool");
  EXPECT_EQ(messages[2]["content"], "2");
  EXPECT_EQ(messages[3]["content"][0]["text"], "and now?");
}

TEST(Messages, RefusesWrongValuesByPath) {
  expect_refused("max_tokens",
                 [] { parse_message(R"({"messages": [{"role": "user", "content": "hi"}]})", {}); });
  EXPECT_NO_THROW(parse_count_tokens(R"({"messages": [{"role": "user", "content": "hi"}]})", {}));
  const std::pair<const char*, const char*> cases[] = {
      {"temperature", R"("temperature": 1.5)"},
      {"thinking.budget_tokens", R"("thinking": {"type": "enabled", "budget_tokens": 10})"},
      {"thinking.budget_tokens", R"("thinking": {"type": "enabled", "budget_tokens": 2000})"},
      {"tools[0].input_schema", R"("tools": [{"name": "x"}])"},
      {"tools[0].type", R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])"},
      {"tool_choice.type", R"("tool_choice": {"type": "maybe"})"},
      {"tool_choice", R"("tool_choice": {"type": "any"})"},
      {"stop_sequences", R"("stop_sequences": [""])"},
      {"system[0].type", R"("system": [{"type": "image"}])"},
  };
  for (const auto& [param, more] : cases) expect_refused(param, [&] { parse(more); });
  expect_refused("messages[0].content[0].type", [] {
    parse_message(R"({"max_tokens": 5, "messages": [{"role": "user", "content":
                      [{"type": "document"}]}]})",
                  {});
  });
  expect_refused("messages[0].content", [] {
    parse_message(R"({"max_tokens": 5, "messages": [{"role": "user", "content": []}]})", {});
  });
  expect_refused("messages[0].role", [] {
    parse_message(R"({"max_tokens": 5, "messages": [{"role": "system", "content": "x"}]})", {});
  });
}

TEST(Messages, ALastMessageOfTheAssistantIsContinued) {
  const GenerationRequest request = parse_message(
      R"({"max_tokens": 5, "messages": [{"role": "user", "content": "hi"},
          {"role": "assistant", "content": "Hello, "}]})",
      {});
  EXPECT_EQ(request.forced_prefix, "Hello, ");
  EXPECT_FALSE(request.prefix_in_answer);
  EXPECT_EQ(Json::parse(*request.chat_json)["messages"].size(), 1u);
}

TEST(Messages, ToolChoiceForcesOrHides) {
  const std::string tools = "\"tools\": " + kTools;
  EXPECT_NE(parse(tools).tools_json.find("parameters"), std::string::npos);
  EXPECT_EQ(parse(tools + R"(, "tool_choice": {"type": "none"})").tools_json, "");
  EXPECT_EQ(parse(tools + R"(, "tool_choice": {"type": "any"})").forced_prefix,
            "<tool_call>\n<function=add>\n");
  EXPECT_TRUE(parse(tools + R"(, "tool_choice": {"type": "auto",
                               "disable_parallel_tool_use": true})")
                  .one_call_only);
}

const std::string kText =
    "hm\n</think>\n\nI add.\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
    "</function>\n</tool_call>";

TEST(Messages, AnswersBlocks) {
  const GenerationRequest request = parse("\"tools\": " + kTools);
  const auto format = message_format(test_identity(), request);
  const Json body = Json::parse(answer_in(*format, request, kText, true, false));
  EXPECT_EQ(body["id"], "msg_abc");
  EXPECT_EQ(body["type"], "message");
  ASSERT_EQ(body["content"].size(), 3u) << body;
  EXPECT_EQ(body["content"][0]["thinking"], "hm");
  EXPECT_EQ(body["content"][1]["text"], "I add.");
  EXPECT_EQ(body["content"][2]["input"]["a"], 1);
  EXPECT_EQ(body["stop_reason"], "tool_use");
  EXPECT_EQ(body["usage"]["input_tokens"], 4);
  EXPECT_EQ(body["usage"]["cache_read_input_tokens"], 3);
}

TEST(Messages, AStopSequenceIsNamed) {
  const GenerationRequest request = parse(R"("stop_sequences": ["END"])");
  const auto format = message_format(test_identity(), request);
  const Json body = Json::parse(answer_in(*format, request, "ab END cd", false, false));
  EXPECT_EQ(body["content"][0]["text"], "ab ");
  EXPECT_EQ(body["stop_reason"], "stop_sequence");
  EXPECT_EQ(body["stop_sequence"], "END");
}

TEST(Messages, AStreamOpensAndClosesEachBlock) {
  const GenerationRequest request = parse("\"stream\": true, \"tools\": " + kTools);
  const auto format = message_format(test_identity(), request);
  std::istringstream lines(answer_in(*format, request, kText, true, true));
  std::string order, line, text, thinking, input, event;
  int index = -1;
  while (std::getline(lines, line)) {
    if (line.rfind("event: ", 0) == 0) event = line.substr(7);
    if (line.rfind("data: ", 0) != 0) continue;
    const Json data = Json::parse(line.substr(6));
    EXPECT_EQ(data["type"], event);
    if (event == "content_block_start") ++index;
    EXPECT_EQ(data.value("index", index), index);
    if (event == "content_block_delta") {
      text += data["delta"].value("text", "");
      thinking += data["delta"].value("thinking", "");
      input += data["delta"].value("partial_json", "");
    } else {
      order += event + " ";
      if (event == "content_block_start") {
        order += data["content_block"]["type"].get<std::string>() + " ";
      }
    }
    if (event == "message_delta") {
      EXPECT_EQ(data["delta"]["stop_reason"], "tool_use");
    }
  }
  EXPECT_EQ(order,
            "message_start content_block_start thinking content_block_stop content_block_start "
            "text content_block_stop content_block_start tool_use content_block_stop message_delta "
            "message_stop ");
  EXPECT_EQ(thinking, "hm");
  EXPECT_EQ(text, "I add.");
  EXPECT_EQ(Json::parse(input), Json::parse(R"({"a": 1})"));
}

TEST(Messages, ErrorsHaveTheOriginalShape) {
  try {
    parse(R"("temperature": 1.5)");
    FAIL();
  } catch (const ApiError& error) {
    const Json body = Json::parse(error_body(error, dialect_of_path("/v1/messages")));
    EXPECT_EQ(body["type"], "error");
    EXPECT_EQ(body["error"]["type"], "invalid_request_error");
    EXPECT_EQ(body["error"]["message"], "temperature: must be a number in [0, 1]");
    const Json openai = Json::parse(error_body(error, dialect_of_path("/v1/completions")));
    EXPECT_EQ(openai["error"]["param"], "temperature");
    EXPECT_TRUE(openai["error"]["code"].is_null());
  }
}

}  // namespace
}  // namespace lockstep
