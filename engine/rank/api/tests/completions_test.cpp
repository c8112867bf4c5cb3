// OpenAI's plain completions, tokens, and the rule for models' names.
#include "engine/rank/api/completions.h"

#include <nlohmann/json.hpp>

#include "engine/rank/api/tests/api_test_support.h"
#include "engine/rank/api/tokens.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using testing::answer_in;
using testing::expect_refused;
using testing::golden_tokenizer;
using testing::test_identity;

GenerationRequest parse(const std::string& body) {
  return parse_completion(body, {});
}

TEST(Completions, TakesTextIdsAndListsOfOne) {
  EXPECT_EQ(parse(R"({"prompt": "ab"})").prompt_text, "ab");
  EXPECT_EQ(parse(R"({"prompt": ["ab"]})").prompt_text, "ab");
  EXPECT_EQ(parse(R"({"prompt": [1, 2]})").prompt_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(parse(R"({"prompt": [[1, 2]]})").prompt_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(parse(R"({"prompt": "ab"})").max_tokens, 16);
}

TEST(Completions, RefusesWhatItCannotDo) {
  const std::pair<const char*, const char*> cases[] = {
      {"prompt", R"({})"},
      {"prompt", R"({"prompt": []})"},
      {"prompt", R"({"prompt": ["a", "b"]})"},
      {"prompt[1]", R"({"prompt": [1, -2]})"},
      {"echo", R"({"prompt": "a", "echo": true})"},
      {"suffix", R"({"prompt": "a", "suffix": "b"})"},
      {"best_of", R"({"prompt": "a", "best_of": 2})"},
      {"logprobs", R"({"prompt": "a", "logprobs": 21})"},
  };
  for (const auto& [param, body] : cases) expect_refused(param, [&] { parse(body); });
}

// Objects as wide as a body allows would take minutes to parse, stop strings as long as one
// seconds.
TEST(Completions, RefusesWhatWouldTakeTooLong) {
  const auto with_members = [](int n, const char* brackets) {
    std::string object = brackets;
    for (int i = 0; i < n; ++i) object += fmt::format("{}\"k{}\": \"a: b\"", i == 0 ? "" : ", ", i);
    const std::string end = brackets[0] == '[' ? "}]" : "}";
    return fmt::format(R"({{"prompt": "a", "metadata": {}{}, "user": "b"}})", object, end);
  };
  for (const char* brackets : {"{", "[{"}) {
    EXPECT_EQ(parse(with_members(1024, brackets)).prompt_text, "a");
    expect_refused("", [&] { parse(with_members(1025, brackets)); });
  }
  std::string many = "[{}";
  for (int i = 0; i < 3000; ++i) many += R"(, {"a": 1})";
  EXPECT_EQ(parse(R"({"prompt": "a", "metadata": )" + many + "]}").prompt_text, "a")
      << "the members of one object count, not those of all";
  expect_refused("", [&] { parse(R"({"prompt": "a", "x": )" + std::string(201, '[')); });
  expect_refused("", [&] { parse(R"({"prompt": "a"}]]]]]]]]:::)"); });
  const auto with_stop = [](size_t n) {
    return R"({"prompt": "a", "stop": ")" + std::string(n, 'x') + "\"}";
  };
  EXPECT_EQ(parse(with_stop(4096)).stops.at(0).size(), 4096u);
  expect_refused("stop", [&] { parse(with_stop(4097)); });
}

TEST(Completions, AnswersTheTextAsItIs) {
  const GenerationRequest request = parse(R"({"prompt": "a", "stop": "zz"})");
  const auto format = completion_format(test_identity(), request);
  const std::string text = "x<think>y</think> <tool_call>";
  const Json body = Json::parse(answer_in(*format, request, text + "zz more", false, false));
  EXPECT_EQ(body["choices"][0]["text"], text);
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
}

TEST(Completions, LogprobsAreParallelLists) {
  const GenerationRequest request = parse(R"({"prompt": "a", "logprobs": 2})");
  const auto format = completion_format(test_identity(), request);
  AnswerReader reader(golden_tokenizer(), request, false);
  const std::vector<int32_t> ids = golden_tokenizer().encode("ab cd");
  std::vector<StepLogits> steps;
  for (const int32_t id : ids) steps.push_back({{id, 5}, {2.0f, 1.0f}, 3.0, 2.0f});
  Answer answer;
  answer.add(reader.push(ids, steps));
  answer.add(reader.finish());
  const Json body = Json::parse(format->whole(answer, {}));
  const Json& logprobs = body["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), ids.size());
  EXPECT_EQ(logprobs["token_logprobs"][0], -1.0);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2u);
}

// For judges: a token by its number, and none left out.
TEST(Completions, LogprobsNameTokensByTheirIds) {
  const GenerationRequest request =
      parse(R"({"prompt": "a", "logprobs": 2, "return_tokens_as_token_ids": true})");
  AnswerReader reader(golden_tokenizer(), request, false);
  const int32_t end = golden_tokenizer().added_token_id("<|im_end|>").value();
  Answer answer;
  answer.add(reader.push(std::vector<int32_t>{7, end},
                         std::vector<StepLogits>(2, {{7, 5}, {2.0f, 1.0f}, 3.0, 2.0f})));
  const auto format = completion_format(test_identity(), request);
  const Json logprobs = Json::parse(format->whole(answer, {}))["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], (Json{"token_id:7", "token_id:" + std::to_string(end)}));
  EXPECT_EQ(logprobs["top_logprobs"][0], (Json{{"token_id:7", -1.0}, {"token_id:5", -2.0}}));
}

TEST(Tokens, BothNamesOfATextAndAChat) {
  EXPECT_EQ(parse_tokenize(R"({"prompt": "ab"})").prompt_text, "ab");
  EXPECT_EQ(parse_tokenize(R"({"content": "ab"})").prompt_text, "ab");
  EXPECT_TRUE(
      parse_tokenize(R"({"messages": [{"role": "user", "content": "x"}]})").chat_json.has_value());
  expect_refused("prompt", [] { parse_tokenize("{}"); });
  EXPECT_EQ(parse_detokenize(R"({"tokens": [3, 4]})"), (std::vector<int32_t>{3, 4}));
  expect_refused("tokens[0]", [] { parse_detokenize(R"({"tokens": ["a"]})"); });
}

TEST(Models, AStrictServerNamesWhatItHas) {
  EXPECT_NO_THROW(check_model("other", "tiny", false));
  EXPECT_NO_THROW(check_model("tiny", "tiny", true));
  try {
    check_model("other", "tiny", true);
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 404);
    EXPECT_EQ(error.code(), "model_not_found");
    EXPECT_NE(std::string(error.what()).find("'tiny'"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
