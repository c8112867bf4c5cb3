// Limits, messages and hostile templates. What templates render is compared with Jinja2 in
// template_oracle_test.cpp.
#include "engine/text/chat_template.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/mapped_file.h"
#include "engine/text/chat_request.h"
#include "engine/text/text_test_support.h"
#include "engine/text/tokenizer.h"

namespace lockstep {
namespace {

std::string repeat(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

std::string error_of(const std::string& source, const std::string& context = "{}",
                     const TemplateOptions& options = {}) {
  try {
    return "rendered: " + ChatTemplate(source, "t", options).render(context);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ChatTemplate, NamesWhatIsNotSupportedAndItsLine) {
  EXPECT_EQ(error_of("a\n{% include 'x' %}"), "t: line 2: the tag 'include' is not supported");
  EXPECT_EQ(error_of("\n\n{{ x | pprint }}"), "t: line 3: the filter 'pprint' is not supported");
  EXPECT_EQ(error_of("{{ x is sameas(1) }}"), "t: line 1: the test 'sameas' is not supported");
  EXPECT_EQ(error_of("\n{{ 'a'.title() }}"),
            "t: line 2: the method 'title' of 'str' is not supported");
  EXPECT_EQ(error_of("{{ lipsum() }}"), "t: line 1: the function 'lipsum' is not supported");
  EXPECT_EQ(error_of("{{ f(*x) }}"),
            "t: line 1: arguments unpacked with * or ** are not supported");
  EXPECT_EQ(error_of("{% for a in b recursive %}{% endfor %}"),
            "t: line 1: recursive loops are not supported");
  EXPECT_EQ(error_of("{{ '%d' % 1 }}"), "t: line 1: formatting a string with '%' is not supported");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\nb\n{{ raise_exception('no') }}"),
            "t: line 3: the template refuses the request: no");
  EXPECT_EQ(error_of("\n{{ x.y }}"), "t: line 2: 'x' is undefined");
  EXPECT_EQ(error_of("{% if true %}\n\n"), "t: line 1: the block has no 'endif'");
  EXPECT_EQ(error_of("{{ 1 +"), "t: line 1: a {{ without }}");
  EXPECT_EQ(error_of("x", "[1]"), "the template's variables: not a JSON object");
  EXPECT_EQ(error_of("x", "{\"a\": }"), "the template's variables: not valid JSON at byte 7");
  EXPECT_EQ(error_of("\xFF"), "t: line 1: the template is not valid UTF-8");
}

TEST(ChatTemplate, TheDateComesFromTheCaller) {
  const ChatTemplate chat_template("{{ strftime_now('%Y-%m-%d %H:%M') }}", "t");
  EXPECT_EQ(chat_template.render("{}", 86399), "1970-01-01 23:59");
  EXPECT_THROW(chat_template.render("{}"), Error);
}

// Every one of these would run, grow or recurse without end.
TEST(ChatTemplate, HostileTemplatesEndInAClearError) {
  TemplateOptions options;
  options.limits.max_steps = 300'000;
  options.limits.max_output_bytes = 1 << 20;
  options.limits.max_memory_bytes = 32 << 20;
  const auto expect_error = [&](const std::string& source, const std::string& part) {
    const std::string error = error_of(source, "{}", options);
    EXPECT_NE(error.find(part), std::string::npos) << source.substr(0, 80) << "\n"
                                                   << error.substr(0, 200);
  };
  expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper than 1000 levels");
  expect_error("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
               "more than");
  expect_error("{% for a in range(99999) %}{% for b in [1, 2, 3] %}{{ b }}{% endfor %}{% endfor %}",
               "300000 steps");
  expect_error("{{ range(100001) }}", "a range of more than 100000 numbers");
  expect_error("{{ range(0, -9223372036854775807, -1) }}", "a range of more than");
  expect_error("{{ 'a' * 9223372036854775807 }}", "more than");
  expect_error("{{ [1] * 99999999999 }}", "more than");
  expect_error("{{ [0] * 9223372036854775807 * 2 }}", "more than");
  expect_error(
      "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% "
      "endfor %}",
      "more than");
  expect_error(
      "{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s.replace('a', "
      "ns.s) %}{% endfor %}",
      "more than");
  expect_error(
      "{% set ns = namespace(s=[1]) %}{% for i in range(300) %}{% set ns.s = [ns.s, ns.s] %}{% "
      "endfor %}{{ ns.s }}",
      "nested deeper than 200 levels");
  expect_error(
      "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% "
      "endfor %}{{ ns.s | tojson }}",
      "300000 steps");
  expect_error(
      "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
      "{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
      "300000 steps");
  expect_error("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}{{ [ns] }}", "not supported");
  expect_error("{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me | tojson }}",
               "cannot be written as JSON");
  expect_error("{% set s = 'x' * 900000 %}{{ s }}{{ s }}", "longer than 1048576 bytes");
  expect_error(
      "{% set s = 'x' * 900000 %}{% for i in range(99999) %}{% if 'y' in s %}{% endif %}{% endfor "
      "%}",
      "300000 steps");
  expect_error("{{ 9223372036854775807 + 1 }}", "beyond 64 bits");
  expect_error("{{ 10 ** 99999999 }}", "beyond 64 bits");
  expect_error("{{ 99999999999999999999 }}", "a number out of range");
  expect_error("{{ 1 // 0 }}{{ 1 % 0 }}", "division by zero");
  expect_error("{{ [1][::0] }}", "step cannot be zero");
  expect_error("{{ {'a': 1} | tojson(indent=9223372036854775807) }}",
               "not an integer from 0 to 1000");
  expect_error("{{ strftime_now('%9999999d') }}", "asks for the date");
}

TEST(ChatTemplate, DeepNestingIsRefusedWhereverItIs) {
  constexpr int kDeep = 100'000;
  for (const std::string& source :
       {"{{ " + repeat("(", kDeep) + "1" + repeat(")", kDeep) + " }}",
        "{{ " + repeat("[", kDeep) + repeat("]", kDeep) + " }}",
        "{{ " + repeat("{'a':", kDeep) + "1" + repeat("}", kDeep) + " }}",
        "{{ " + repeat("not ", kDeep) + "1 }}",
        "{{ " + repeat("-", kDeep) + "1 }}",
        "{{ 1" + repeat(" + 1", kDeep) + " }}",
        "{{ a" + repeat(".a", kDeep) + " }}",
        "{{ a" + repeat("[0]", kDeep) + " }}",
        "{{ a" + repeat("()", kDeep) + " }}",
        "{{ a" + repeat(" | trim", kDeep) + " }}",
        "{{ a" + repeat(" and a", kDeep) + " }}",
        "{{ a" + repeat(" if a else a", kDeep) + " }}",
        "{{ a" + repeat(" if a", kDeep) + " }}",
        "{{ " + repeat("a[", kDeep) + "1" + repeat("]", kDeep) + " }}",
        repeat("{% if a %}", kDeep),
        repeat("{% for a in b %}", kDeep),
        repeat("{% macro m() %}", kDeep),
        repeat("{% set a %}", kDeep),
        repeat("{% filter trim %}", kDeep),
        "{{ a" + repeat(" is string", kDeep) + " }}"}) {
    const std::string error = error_of(source);
    EXPECT_TRUE(error.find("nested deeper") != std::string::npos ||
                error.find("too many parts") != std::string::npos ||
                error.find("chained with is") != std::string::npos)
        << source.substr(0, 30) << ": " << error.substr(0, 200);
  }
  // Long is not deep.
  EXPECT_EQ(
      error_of("{{ [" + repeat("1,", 2000) + "] | length }}{{ ''" + repeat(" ~ 'a'", 2000) + " }}")
          .size(),
      std::string("rendered: ").size() + 4 + 2000);
  EXPECT_EQ(
      error_of("{{ a | tojson }}", "{\"a\": " + repeat("[", kDeep) + repeat("]", kDeep) + "}"),
      "the template's variables: nested deeper than 150 levels");
}

TEST(ChatTemplate, LoadsTheTemplateOfAnOlderCheckpoint) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("lockstep-template-{}", getpid());
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& text) {
    write_file_atomically(folder / "tokenizer_config.json", text);
  };
  write(
      R"({"chat_template": "{{ messages[0].content }}{{ eos_token }}", "eos_token": {"content": "<e>"}})");
  const std::string body = R"({"messages": [{"role": "user", "content": "hi"}]})";
  EXPECT_EQ(render_chat(ChatTemplate::load(folder), body), "hi<e>");
  write(
      R"({"chat_template": [{"name": "tool", "template": "no"}, {"name": "default", "template": "yes"}]})");
  EXPECT_EQ(render_chat(ChatTemplate::load(folder), body), "yes");
  write("{}");
  EXPECT_THROW(ChatTemplate::load(folder), Error);
  write("{");
  EXPECT_THROW(ChatTemplate::load(folder), Error);
  std::filesystem::remove_all(folder);
  EXPECT_THROW(ChatTemplate::load(folder), Error);
}

std::string chat_error(const std::string& body) {
  try {
    return "rendered: " + render_chat(ChatTemplate::load(golden_model_dir()), body);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ChatRequest, NamesTheMemberThatIsWrong) {
  EXPECT_EQ(chat_error("nonsense"), "the request: not valid JSON at byte 2");
  EXPECT_EQ(chat_error("[]"), "the request: not a JSON object");
  EXPECT_EQ(chat_error("{}"), "the request has no messages");
  EXPECT_EQ(chat_error(R"({"messages": []})"),
            "the request's messages are not a list with at least one message");
  EXPECT_EQ(chat_error(R"({"messages": [{"content": "x"}]})"),
            "messages[0]: not an object with a role");
  EXPECT_EQ(chat_error(R"({"messages": [{"role": "user"}], "tools": 1})"), "tools: not a list");
  EXPECT_EQ(chat_error(R"({"messages": [{"role": "user"}], "tools": [1]})"),
            "tools[0]: not an object");
  EXPECT_EQ(chat_error(R"({"messages": [{"role": "user"}], "chat_template_kwargs": []})"),
            "chat_template_kwargs: not an object");
  EXPECT_EQ(
      chat_error(R"({"messages": [{"role": "user"}], "chat_template_kwargs": {"messages": []}})"),
      "chat_template_kwargs.messages: belongs into the request itself");
  const auto with_call = [](const std::string& call) {
    return R"({"messages": [{"role": "user"}, {"role": "assistant", "tool_calls": [)" + call +
           "]}]}";
  };
  EXPECT_EQ(chat_error(with_call("1")), "messages[1].tool_calls[0]: not an object");
  EXPECT_EQ(chat_error(with_call(R"({"function": {"name": "f", "arguments": "{"}})")),
            "messages[1].tool_calls[0].function.arguments: not valid JSON at byte 2");
  EXPECT_EQ(chat_error(with_call(R"({"function": {"name": "f", "arguments": "[1]"}})")),
            "messages[1].tool_calls[0].function.arguments: the JSON text is not an object");
  EXPECT_EQ(chat_error(with_call(R"({"function": {"name": "f", "arguments": 3}})")),
            "messages[1].tool_calls[0].function.arguments: neither an object nor JSON text");
}

// The oracle's image prompts: the template makes one pad of each image, the engine many.
TEST(ChatRequest, RendersTheOraclesImagePrompts) {
  const Tokenizer tokenizer = Tokenizer::load(golden_model_dir());
  const std::optional<int32_t> pad = tokenizer.added_token_id("<|image_pad|>");
  const auto oracle = nlohmann::json::parse(
      read_text_file(std::string(LOCKSTEP_GOLDEN_DIR) + "/oracle/public.json"));
  int n = 0;
  for (const auto& prompt : oracle.at("prompts")) {
    if (prompt.at("question").is_null()) continue;
    nlohmann::json content = nlohmann::json::array();
    const size_t n_images = prompt.at("images").is_null() ? 1 : prompt.at("images").size();
    for (size_t i = 0; i < n_images; ++i) content.push_back({{"type", "image"}});
    content.push_back({{"type", "text"}, {"text", prompt.at("question")}});
    nlohmann::json body;
    body["messages"] = nlohmann::json::array({{{"role", "user"}, {"content", content}}});
    body["chat_template_kwargs"]["enable_thinking"] = false;
    std::vector<int32_t> expected;
    for (const int32_t id : prompt.at("ids").get<std::vector<int32_t>>()) {
      if (id != pad || expected.empty() || expected.back() != pad) expected.push_back(id);
    }
    const std::string text = render_chat(ChatTemplate::load(golden_model_dir()), body.dump());
    EXPECT_EQ(tokenizer.encode(text), expected) << prompt.at("name");
    ++n;
  }
  EXPECT_EQ(n, 5);
}

}  // namespace
}  // namespace lockstep
