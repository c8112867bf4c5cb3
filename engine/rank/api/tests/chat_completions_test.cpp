// OpenAI's chat completions: which requests are taken, refused and how, and what answers look like.
#include "engine/rank/api/chat_completions.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/rank/api/tests/api_test_support.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using testing::answer_in;
using testing::expect_refused;
using testing::test_identity;

const std::string kTools = R"([{"type": "function", "function": {"name": "add", "parameters":
  {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}}])";
const std::string kCall =
    "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n"
    "</function>\n</tool_call>";

std::string body_with(const std::string& more) {
  return R"({"model": "m", "messages": [{"role": "user", "content": "hi"}])" +
         (more.empty() ? "" : ", " + more) + "}";
}

GenerationRequest parse(const std::string& more) {
  return parse_chat_completion(body_with(more), {});
}

TEST(ChatCompletions, ReadsEveryField) {
  const GenerationRequest request = parse(
      R"("temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "presence_penalty": 1,
         "frequency_penalty": -1, "repetition_penalty": 1.1, "logit_bias": {"5": 2.5}, "seed": -3,
         "stop": ["a", "b"], "max_completion_tokens": 9, "stream": true, "logprobs": true,
         "stream_options": {"include_usage": true}, "top_logprobs": 4, "n": 1, "user": "x",
         "response_format": {"type": "text"}, "unknown_field": {"x": 1})");
  EXPECT_EQ(request.model, "m");
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.9f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_FLOAT_EQ(request.sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(request.sampling.presence_penalty, 1.0f);
  EXPECT_FLOAT_EQ(request.sampling.frequency_penalty, -1.0f);
  EXPECT_FLOAT_EQ(request.sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(request.sampling.logit_bias.at(5), 2.5f);
  EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_TRUE(request.seed_given);
  EXPECT_EQ(request.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.n_top_logprobs, 4);
}

TEST(ChatCompletions, ADefaultStaysWhereTheRequestSaysNothing) {
  SamplingParams defaults;
  defaults.temperature = 0.7f;
  defaults.top_k = 20;
  const GenerationRequest request = parse_chat_completion(body_with("\"top_k\": null"), defaults);
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.7f);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_FALSE(request.seed_given);
  EXPECT_FALSE(request.max_tokens.has_value());
}

TEST(ChatCompletions, RefusesWrongValuesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"temperature", R"("temperature": 3)"},
      {"temperature", R"("temperature": "hot")"},
      {"top_p", R"("top_p": -0.1)"},
      {"top_k", R"("top_k": 1.5)"},
      {"seed", R"("seed": 1e30)"},
      {"n", R"("n": 2)"},
      {"stop", R"("stop": [""])"},
      {"stop", R"("stop": 5)"},
      {"stop[1]", R"("stop": ["a", 5])"},
      {"max_tokens", R"("max_tokens": 0)"},
      {"max_completion_tokens", R"("max_completion_tokens": -1)"},
      {"stream", R"("stream": "yes")"},
      {"stream_options", R"("stream_options": {"include_usage": true})"},
      {"top_logprobs", R"("top_logprobs": 3)"},
      {"top_logprobs", R"("logprobs": true, "top_logprobs": 21)"},
      {"logit_bias", R"("logit_bias": {"x": 1})"},
      {"response_format", R"("response_format": {"type": "json_object"})"},
      {"response_format.type", R"("response_format": {"type": "xml"})"},
      {"reasoning_effort", R"("reasoning_effort": "huge")"},
      {"chat_template_kwargs.enable_thinking", R"("chat_template_kwargs": {"enable_thinking": 1})"},
      {"functions", R"("functions": [])"},
      {"tools[0].function.name", R"("tools": [{"type": "function", "function": {}}])"},
      {"tools[0].type", R"("tools": [{"type": "retrieval"}])"},
      {"tool_choice", R"("tool_choice": "required")"},
  };
  for (const auto& [param, more] : cases) expect_refused(param, [&] { parse(more); });
}

// What would change the answer is not ignored; what asks for nothing is.
TEST(ChatCompletions, RefusesFieldsThatOtherServersHave) {
  const std::pair<const char*, std::pair<const char*, const char*>> cases[] = {
      {"guided_json", {R"({"type": "object"})", "{}"}},
      {"structured_outputs", {R"({"choice": ["a"]})", "null"}},
      {"min_tokens", {"5", "0"}},
      {"stop_token_ids", {"[7]", "[]"}},
      {"prompt_logprobs", {"1", "null"}},
      {"best_of", {"2", "1"}},
      {"echo", {"true", "false"}},
      {"modalities", {R"(["text", "audio"])", R"(["text"])"}},
      {"skip_special_tokens", {"false", "true"}},
      {"add_generation_prompt", {"false", "true"}},
      {"function_call", {R"({"name": "f"})", R"("")"}},
  };
  for (const auto& [param, values] : cases) {
    const auto body = [name = param](const char* value) {
      return body_with(fmt::format("\"{}\": {}", name, value));
    };
    expect_refused(param, [&] { parse_chat_completion(body(values.first), {}); });
    EXPECT_NO_THROW(parse_chat_completion(body(values.second), {})) << param;
  }
}

TEST(ChatCompletions, RefusesWrongMessagesByPath) {
  const std::pair<const char*, const char*> cases[] = {
      {"messages", R"({})"},
      {"messages", R"({"messages": []})"},
      {"messages", R"({"messages": "hi"})"},
      {"messages[0]", R"({"messages": [5]})"},
      {"messages[0].role", R"({"messages": [{"content": "hi"}]})"},
      {"messages[0].role", R"({"messages": [{"role": "king", "content": "hi"}]})"},
      {"messages[0].content", R"({"messages": [{"role": "user"}]})"},
      {"messages[0].content[0].type",
       R"({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]})"},
      {"messages[0].content[1].text",
       R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
           {"type": "text"}]}]})"},
      {"messages[0].content[0].image_url.url",
       R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})"},
      {"messages[0].tool_calls[0].function.name",
       R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})"},
      {"", "[1]"},
      {"", "{"},
      {"", "\xff"},
  };
  for (const auto& [param, body] : cases) {
    expect_refused(param, [&] { parse_chat_completion(body, {}); });
  }
  const std::string deep = R"({"messages": )" + std::string(300, '[') + std::string(300, ']') + "}";
  expect_refused("", [&] { parse_chat_completion(deep, {}); });
}

TEST(ChatCompletions, ThinkingFollowsTheRequest) {
  const auto kwargs = [](const std::string& more) {
    return Json::parse(*parse(more).chat_json).value("chat_template_kwargs", Json::object());
  };
  EXPECT_TRUE(kwargs("").empty());
  EXPECT_EQ(kwargs(R"("reasoning_effort": "none")")["enable_thinking"], false);
  EXPECT_EQ(kwargs(R"("reasoning_effort": "high")").contains("enable_thinking"), false);
  EXPECT_EQ(kwargs(R"("reasoning_effort": "none",
                      "chat_template_kwargs": {"enable_thinking": true})")["enable_thinking"],
            true);
  EXPECT_EQ(Json::parse(*parse(R"("reasoning_effort": "low")").chat_json)["reasoning_effort"],
            "low");
}

TEST(ChatCompletions, ToolChoiceForcesOrHides) {
  const std::string tools = "\"tools\": " + kTools;
  EXPECT_EQ(parse(tools).forced_prefix, "");
  EXPECT_NE(parse(tools).tools_json, "");
  const GenerationRequest none = parse(tools + R"(, "tool_choice": "none")");
  EXPECT_EQ(none.tools_json, "");
  EXPECT_FALSE(Json::parse(*none.chat_json).contains("tools"));
  const std::string named = R"(, "tool_choice": {"type": "function", "function": {"name": "add"}})";
  for (const std::string& choice : {std::string(R"(, "tool_choice": "required")"), named}) {
    const GenerationRequest forced = parse(tools + choice);
    EXPECT_EQ(forced.forced_prefix, "<tool_call>\n<function=add>\n");
    EXPECT_EQ(Json::parse(*forced.chat_json)["chat_template_kwargs"]["enable_thinking"], false);
  }
  expect_refused("tool_choice", [&] {
    parse(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "sub"}})");
  });
  EXPECT_TRUE(parse(tools + R"(, "parallel_tool_calls": false)").one_call_only);
}

TEST(ChatCompletions, AnswersReasoningAndContent) {
  const GenerationRequest request = parse("");
  const auto format = chat_completion_format(test_identity(), request);
  const Json body =
      Json::parse(answer_in(*format, request, "let me see\n</think>\n\nFour.", true, false));
  EXPECT_EQ(body["id"], "chatcmpl-abc");
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["created"], 1700000000);
  const Json& message = body["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "let me see");
  EXPECT_EQ(message["content"], "Four.");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  const int64_t reasoning = body["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_GT(reasoning, 2);
  EXPECT_LT(reasoning, body["usage"]["completion_tokens"].get<int64_t>());
}

TEST(ChatCompletions, AStreamAddsUpToTheWholeAnswer) {
  const GenerationRequest request = parse(
      "\"stream\": true, \"stream_options\": {\"include_usage\": true}, \"tools\": " + kTools);
  const auto format = chat_completion_format(test_identity(), request);
  const std::string text = "hm\n</think>\n\nI add.\n" + kCall;
  std::istringstream lines(answer_in(*format, request, text, true, true));
  std::string reasoning, content, name, arguments, id, finish, line, last;
  Json usage;
  while (std::getline(lines, line)) {
    if (line.empty()) continue;
    ASSERT_EQ(line.rfind("data: ", 0), 0u) << line;
    last = line.substr(6);
    if (last == "[DONE]") continue;
    const Json chunk = Json::parse(last);
    if (chunk["choices"].empty()) {
      usage = chunk["usage"];
      continue;
    }
    EXPECT_TRUE(chunk["usage"].is_null());
    const Json& choice = chunk["choices"][0];
    const Json& delta = choice["delta"];
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"].get<std::string>();
    if (!delta.contains("tool_calls")) continue;
    const Json& call = delta["tool_calls"][0];
    EXPECT_EQ(call["index"], 0);
    if (call.contains("id")) id = call["id"].get<std::string>();
    name += call["function"].value("name", "");
    arguments += call["function"].value("arguments", "");
  }
  EXPECT_EQ(last, "[DONE]");
  EXPECT_EQ(reasoning, "hm");
  EXPECT_EQ(content, "I add.");
  EXPECT_EQ(id, "call_abc_0");
  EXPECT_EQ(name, "add");
  EXPECT_EQ(Json::parse(arguments), Json::parse(R"({"a": 1, "b": 2})"));
  EXPECT_EQ(finish, "tool_calls");
  EXPECT_GT(usage["completion_tokens"].get<int64_t>(), 10);
}

TEST(ChatCompletions, AForcedPrefixIsPartOfTheCall) {
  const GenerationRequest request = parse(R"("tool_choice": "required", "tools": )" + kTools);
  const auto format = chat_completion_format(test_identity(), request);
  const std::string text = kCall.substr(request.forced_prefix.size());
  const Json body = Json::parse(answer_in(*format, request, text, false, false));
  const Json& message = body["choices"][0]["message"];
  ASSERT_EQ(message["tool_calls"].size(), 1u) << body;
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "add");
  EXPECT_TRUE(message["content"].is_null());
}

TEST(ChatCompletions, OneCallOnlyEndsBehindTheFirst) {
  const GenerationRequest request = parse(R"("parallel_tool_calls": false, "tools": )" + kTools);
  const auto format = chat_completion_format(test_identity(), request);
  EXPECT_EQ(generation_stops(request), (std::vector<std::string>{"</tool_call>"}));
  const Json body =
      Json::parse(answer_in(*format, request, "</think>\n\n" + kCall + "\n" + kCall, true, false));
  EXPECT_EQ(body["choices"][0]["message"]["tool_calls"].size(), 1u) << body;
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
}

}  // namespace
}  // namespace lockstep
