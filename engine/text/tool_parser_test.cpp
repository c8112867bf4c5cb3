#include "engine/text/tool_parser.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/philox.h"

namespace lockstep {
namespace {

ToolSchemas schemas() {
  return ToolSchemas::from_request(
      R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {
      "s": {"type": "string"}, "i": {"type": "integer"}, "n": {"type": "number"}, "b": {"type": "boolean"},
      "o": {"type": "object"}, "l": {"type": "array"}, "sn": {"type": ["string", "null"]},
      "in": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "e": {"enum": ["1", "2"]}, "u": {}}}}},
    {"name": "flat", "parameters": {"properties": {"i": {"type": "integer"}}}}, 7, {"function": 3}]})");
}

std::string call_text(const std::string& name,
                      const std::vector<std::pair<std::string, std::string>>& parameters) {
  std::string text = "<tool_call>\n<function=" + name + ">\n";
  for (const auto& [key, value] : parameters)
    text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  return text + "</function>\n</tool_call>";
}

std::string flat(const ParsedTools& parsed) {
  std::string text = "content=" + parsed.content;
  for (const ToolCall& call : parsed.calls) text += "|" + call.name + call.arguments_json;
  return text;
}

// Parses whole and in pieces and expects both to agree.
std::string parse(const std::string& text) {
  const std::string whole = flat(parse_tools(text, schemas()));
  PhiloxStream random(9);
  for (int round = 0; round < 12; ++round) {
    ToolParser parser(schemas());
    ParsedTools joined;
    const auto take = [&](const std::vector<ToolEvent>& events) {
      for (const ToolEvent& event : events) {
        if (event.kind == ToolEvent::Kind::content) joined.content += event.text;
        if (event.kind == ToolEvent::Kind::call) joined.calls.push_back({event.text, ""});
        if (event.kind == ToolEvent::Kind::arguments)
          joined.calls.at(event.index).arguments_json += event.text;
      }
    };
    for (size_t at = 0; at < text.size();) {
      const size_t n = round == 0 ? 1 : 1 + random.next_below(12);
      take(parser.push(text.substr(at, n)));
      at += n;
    }
    take(parser.finish());
    EXPECT_EQ(flat(joined), whole) << text;
  }
  return whole;
}

TEST(ToolParser, ReadsCallsAndTheTextBeforeThem) {
  EXPECT_EQ(parse("Let me see.\n\n" + call_text("f", {{"s", "x"}})),
            R"(content=Let me see.|f{"s": "x"})");
  EXPECT_EQ(parse(call_text("f", {})), "content=|f{}");
  EXPECT_EQ(parse(call_text("f", {{"i", "1"}}) + "\n" + call_text("g", {{"a", "2"}}) + "\n"),
            R"(content=|f{"i": 1}|g{"a": "2"})");
  EXPECT_EQ(parse("<tool_call><function=f></function></tool_call>"), "content=|f{}");
}

TEST(ToolParser, PlainTextStaysAsItIs) {
  EXPECT_EQ(parse("no calls here <tool\n\n"), "content=no calls here <tool\n\n");
  EXPECT_EQ(parse(" \n"), "content= \n");
  EXPECT_EQ(parse(""), "content=");
}

TEST(ToolParser, ValuesKeepTheirText) {
  EXPECT_EQ(parse(call_text("f", {{"s", "a\nb < c </parameter> d\n"}})),
            R"(content=|f{"s": "a\nb < c </parameter> d\n"})");
  EXPECT_EQ(parse(call_text("f", {{"s", "{\"x\": 1}"}})), R"(content=|f{"s": "{\"x\": 1}"})");
  EXPECT_EQ(parse(call_text("f", {{"s", "<tool_call>\n</tool_call>"}})),
            R"(content=|f{"s": "<tool_call>\n</tool_call>"})");
  EXPECT_EQ(parse(call_text("f", {{"s", ""}})), R"(content=|f{"s": ""})");
  EXPECT_EQ(parse(call_text("f", {{"s", "\n\nx\n\n"}})), R"(content=|f{"s": "\n\nx\n\n"})");
}

TEST(ToolParser, TypesFollowTheSchema) {
  const auto value = [](const std::string& key, const std::string& text) {
    return schemas().value_json("f", key, text);
  };
  EXPECT_EQ(value("s", "12"), "\"12\"");
  EXPECT_EQ(value("s", "null"), "\"null\"");
  EXPECT_EQ(value("i", "12"), "12");
  EXPECT_EQ(value("i", "5.0"), "5.0");
  EXPECT_EQ(value("i", "5.5"), "\"5.5\"");
  EXPECT_EQ(value("i", "1e300"), "1e300");
  EXPECT_EQ(value("i", "12345678901234567890123"), "12345678901234567890123");
  EXPECT_EQ(value("n", " 1.50\n"), "1.50");
  EXPECT_EQ(value("n", "7"), "7");
  EXPECT_EQ(value("b", "true"), "true");
  EXPECT_EQ(value("b", "True"), "\"True\"");
  EXPECT_EQ(value("o", R"({"k": [1, 2]})"), R"({"k": [1, 2]})");
  EXPECT_EQ(value("o", "[1]"), "\"[1]\"");
  EXPECT_EQ(value("l", "[1, \"é\"]"), "[1, \"é\"]");
  EXPECT_EQ(value("l", "[1"), "\"[1\"");
  EXPECT_EQ(value("sn", "null"), "null");
  EXPECT_EQ(value("sn", "5"), "\"5\"");
  EXPECT_EQ(value("in", "null"), "null");
  EXPECT_EQ(value("in", "5"), "5");
  EXPECT_EQ(value("e", "1"), "\"1\"");
  EXPECT_EQ(value("u", "1"), "\"1\"");
  EXPECT_EQ(value("unknown", "1"), "\"1\"");
  EXPECT_EQ(schemas().value_json("flat", "i", "3"), "3");
  EXPECT_EQ(ToolSchemas().value_json("f", "i", "3"), "\"3\"");
  EXPECT_THROW(ToolSchemas::from_request("[]"), Error);
}

TEST(ToolParser, WhatIsMalformedStaysContent) {
  for (const std::string text :
       {"<tool_call>", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
        "<tool_call>\n<function=f>\n<parameter=a>\n1",
        "<tool_call><function=></function></tool_call>",
        "<tool_call><function=f></function>tail</tool_call>",
        "<tool_call><function=f>loose<parameter=a>1</parameter></function></tool_call>",
        "<tool_call><function=f\n></function></tool_call>", "x <tool_call> y <tool_call> z",
        "a\n\n<tool_call>\n\n"}) {
    EXPECT_EQ(parse(text), "content=" + text);
  }
  EXPECT_EQ(parse("use <tool_call> so: " + call_text("f", {})), "content=use <tool_call> so:|f{}");
  EXPECT_EQ(parse(call_text("f", {}) + "\nand then"), "content=\nand then|f{}");
  EXPECT_EQ(parse("<tool_call><function=" + std::string(300, 'n')),
            "content=<tool_call><function=" + std::string(300, 'n'));
}

TEST(ToolParser, ARepeatedParameterCountsOnce) {
  EXPECT_EQ(parse(call_text("f", {{"i", "1"}, {"s", "x"}, {"i", "2"}})),
            R"(content=|f{"s": "x", "i": 2})");
}

// Whatever arrives, the events do not depend on where the pieces end, arguments are JSON, and
// content holds nothing that was not generated.
TEST(ToolParser, PiecesNeverMatter) {
  PhiloxStream random(21);
  const std::vector<std::string> parts = {"<tool_call>",
                                          "</tool_call>",
                                          "<function=f>",
                                          "</function>",
                                          "<parameter=s>",
                                          "<parameter=i>",
                                          "</parameter>",
                                          "\n",
                                          " ",
                                          "x",
                                          "12",
                                          "<",
                                          "</para",
                                          "é",
                                          "<function=",
                                          ">",
                                          "\n\n"};
  for (int round = 0; round < 600; ++round) {
    std::string text;
    for (uint32_t n = random.next_below(14); n > 0; --n) {
      text += random.next_below(5) == 0
                  ? call_text("f", {{"s", "v"}})
                  : parts[random.next_below(static_cast<uint32_t>(parts.size()))];
    }
    parse(text);
    for (const ToolCall& call : parse_tools(text, schemas()).calls) {
      EXPECT_TRUE(nlohmann::json::accept(call.arguments_json)) << call.arguments_json;
    }
  }
}

}  // namespace
}  // namespace lockstep
